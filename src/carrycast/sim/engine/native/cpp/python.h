// References to Python objects, and errors between C++ and Python.
//
// C++ code throws PythonError when a Python exception is set. Functions that Python calls catch it (`guard`).
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

namespace carrycast {

// A Python exception is set.
struct PythonError {};

// Returns a new or borrowed object, or throws if it is null.
inline PyObject* check(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return object;
}

inline void check_status(int status) {
  if (status < 0) throw PythonError();
}

// An owned reference.
class Ref {
 public:
  Ref() = default;
  // Takes over a new reference; throws if it is null.
  static Ref steal(PyObject* object) { return Ref(check(object)); }
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// Runs the body of a function that Python calls; returns `failed` with a Python exception set if it throws.
template <class Result, class Body>
Result guard(Result failed, Body&& body) noexcept {
  try {
    return body();
  } catch (const PythonError&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return failed;
}

template <class Body>
PyObject* guard_object(Body&& body) noexcept {
  return guard<PyObject*>(nullptr, std::forward<Body>(body));
}

inline int64_t to_int(PyObject* object) {
  int64_t value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

inline double to_double(PyObject* object) {
  if (PyFloat_CheckExact(object)) return PyFloat_AS_DOUBLE(object);
  double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred()) throw PythonError();
  return value;
}

inline bool is_true(PyObject* object) {
  int value = PyObject_IsTrue(object);
  check_status(value);
  return value != 0;
}

inline Ref from_int(int64_t value) { return Ref::steal(PyLong_FromLongLong(value)); }

inline Ref get_attribute(PyObject* object, const char* name) {
  return Ref::steal(PyObject_GetAttrString(object, name));
}

// Calls `callable` with positional arguments.
template <class... Arguments>
Ref call(PyObject* callable, Arguments*... arguments) {
  // The first entry is room for `self`, which a bound method fills without copying the arguments.
  PyObject* stack[] = {nullptr, arguments...};
  return Ref::steal(
      PyObject_Vectorcall(callable, stack + 1, sizeof...(arguments) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

template <class... Arguments>
Ref call_method(PyObject* object, const char* name, Arguments*... arguments) {
  Ref method = get_attribute(object, name);
  return call(method.get(), arguments...);
}

// The arguments of a function with the calling convention METH_FASTCALL | METH_KEYWORDS.
class Arguments {
 public:
  Arguments(const char* function, PyObject* const* values, Py_ssize_t count, PyObject* names)
      : function_(function), values_(values), count_(count), names_(names) {}

  // The argument at a position or with a name; null if it is missing.
  PyObject* find(Py_ssize_t place, const char* name) const {
    if (place < count_) return values_[place];
    if (names_ != nullptr) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names_); i++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names_, i), name) == 0) return values_[count_ + i];
      }
    }
    return nullptr;
  }

  PyObject* get(Py_ssize_t place, const char* name) const {
    PyObject* found = find(place, name);
    if (found == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() is missing the argument '%s'", function_, name);
      throw PythonError();
    }
    return found;
  }

  // Refuses more arguments than a function has.
  void limit(Py_ssize_t most) const {
    Py_ssize_t given = count_ + (names_ == nullptr ? 0 : PyTuple_GET_SIZE(names_));
    if (given > most) {
      PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments, %zd were given", function_, most, given);
      throw PythonError();
    }
  }

 private:
  const char* function_;
  PyObject* const* values_;
  Py_ssize_t count_;
  PyObject* names_;
};

// None as a null pointer, for optional arguments.
inline PyObject* unless_none(PyObject* object) { return object == Py_None ? nullptr : object; }

// A contiguous buffer of numbers, such as a numpy array.
template <class T>
class Buffer {
 public:
  explicit Buffer(PyObject* object) {
    check_status(PyObject_GetBuffer(object, &view_, PyBUF_SIMPLE));
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  const T* begin() const { return static_cast<const T*>(view_.buf); }
  const T* end() const { return begin() + view_.len / static_cast<Py_ssize_t>(sizeof(T)); }

 private:
  Py_buffer view_;
};

}  // namespace carrycast
