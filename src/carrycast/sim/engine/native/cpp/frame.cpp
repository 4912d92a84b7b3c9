#include "frame.h"

#include "protocol.h"

#include <memory>
#include <unordered_map>

namespace carrycast {

namespace {

MessageKind inspect(PyObject* type) {
  MessageKind kind;
  Ref config = get_attribute(type, "__struct_config__");
  Ref tag = get_attribute(config.get(), "tag");
  kind.tag = static_cast<uint16_t>(to_int(tag.get()));
  kind.traffic = static_cast<int>(to_int(get_attribute(type, "traffic").get()));
  auto is_a = [type](PyObject* base) {
    int found = PyObject_IsSubclass(type, base);
    check_status(found);
    return found != 0;
  };
  Ref durations = get_attribute(type, "durations");
  Ref age_by = get_attribute(type, "age_by");
  Py_ssize_t counted = PyObject_Size(durations.get());
  check_status(static_cast<int>(counted));
  auto has_method_of = [&age_by](PyObject* base) { return get_attribute(base, "age_by").get() == age_by.get(); };
  if (is_a(words.event_message)) {
    kind.ages_fast = counted == 1 && has_method_of(words.event_message);
    kind.carries = MessageKind::kEvent;
    // `classify`: a message with an event is data, whatever its class says.
    kind.traffic = kData;
    Ref names = get_attribute(type, "__struct_fields__");
    Ref base = get_attribute(words.event_message, "__struct_fields__");
    for (Py_ssize_t i = PyTuple_GET_SIZE(base.get()); i < PyTuple_GET_SIZE(names.get()); i++) {
      kind.rest.push_back(Py_NewRef(PyTuple_GET_ITEM(names.get(), i)));
    }
  } else if (is_a(words.parcel_message)) {
    kind.carries = MessageKind::kParcel;
    kind.ages_fast = counted == 0 && has_method_of(words.parcel_message);
  }
  return kind;
}

std::vector<Frame*> spare_frames;
constexpr size_t kMostSpareFrames = 4096;

PyTypeObject frame_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

Frame* allocate() {
  if (!spare_frames.empty()) {
    Frame* frame = spare_frames.back();
    spare_frames.pop_back();
    return reinterpret_cast<Frame*>(PyObject_Init(reinterpret_cast<PyObject*>(frame), &frame_type));
  }
  Frame* frame = PyObject_New(Frame, &frame_type);
  if (frame == nullptr) throw PythonError();
  return frame;
}

void frame_dealloc(PyObject* self) {
  Frame* frame = reinterpret_cast<Frame*>(self);
  Py_CLEAR(frame->message);
  Py_CLEAR(frame->body);
  Py_CLEAR(frame->token);
  Py_CLEAR(frame->interface);
  delete frame->targets;
  delete frame->more_ids;
  if (spare_frames.size() < kMostSpareFrames) {
    spare_frames.push_back(frame);
  } else {
    PyObject_Free(self);
  }
}

Frame& frame_of(PyObject* self) { return *reinterpret_cast<Frame*>(self); }

PyObject* frame_sender(PyObject* self, void*) { return PyLong_FromLongLong(frame_of(self).sender); }
PyObject* frame_sent_us(PyObject* self, void*) { return PyLong_FromLongLong(frame_of(self).sent_us); }
PyObject* frame_attempts(PyObject* self, void*) { return PyLong_FromLongLong(frame_of(self).attempts); }
PyObject* frame_copies(PyObject* self, void*) { return PyLong_FromLongLong(frame_of(self).copies()); }
PyObject* frame_size(PyObject* self, void*) { return PyLong_FromLongLong(frame_of(self).size_bytes); }
PyObject* frame_lost(PyObject* self, void*) { return PyBool_FromLong(frame_of(self).lost); }
PyObject* frame_unicast(PyObject* self, void*) { return PyBool_FromLong(frame_of(self).is_unicast()); }
PyObject* frame_message(PyObject* self, void*) {
  return guard_object([&] { return Py_NewRef(frame_of(self).python_message()); });
}
PyObject* frame_interface(PyObject* self, void*) { return Py_NewRef(frame_of(self).interface); }

PyObject* frame_target(PyObject* self, void*) {
  Frame& frame = frame_of(self);
  if (!frame.has_target()) Py_RETURN_NONE;
  return PyLong_FromLongLong(frame.target);
}

PyObject* frame_layer(PyObject* self, void*) { return Py_NewRef(layer_object(frame_of(self).layer)); }

PyObject* frame_token(PyObject* self, void*) {
  PyObject* token = frame_of(self).token;
  return Py_NewRef(token == nullptr ? Py_None : token);
}

PyObject* frame_targets(PyObject* self, void*) {
  return guard_object([&]() -> PyObject* {
    Frame& frame = frame_of(self);
    if (frame.targets == nullptr) Py_RETURN_NONE;
    Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(frame.targets->size())));
    for (size_t i = 0; i < frame.targets->size(); i++) {
      PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), from_int((*frame.targets)[i]).release());
    }
    return made.release();
  });
}

PyObject* frame_encoded(PyObject* self, void*) {
  return guard_object([&] {
    Frame& frame = frame_of(self);
    return check(PySequence_Concat(frame.codec->header.get(), frame.encoded_body()));
  });
}

PyObject* frame_to_target(PyObject* self, PyObject* target) {
  return guard_object([&] { return frame_to(frame_of(self), to_int(target)).release()->object(); });
}

PyGetSetDef frame_values[] = {
    {"sender", frame_sender, nullptr, nullptr, nullptr},
    {"target", frame_target, nullptr, "None for a broadcast.", nullptr},
    {"targets", frame_targets, nullptr, "The targets of a batch; None for other frames.", nullptr},
    {"layer", frame_layer, nullptr, nullptr, nullptr},
    {"message", frame_message, nullptr, nullptr, nullptr},
    {"encoded", frame_encoded, nullptr, nullptr, nullptr},
    {"size_bytes", frame_size, nullptr, "The length of the encoded frame.", nullptr},
    {"token", frame_token, nullptr, nullptr, nullptr},
    {"sent_us", frame_sent_us, nullptr, nullptr, nullptr},
    {"interface", frame_interface, nullptr, nullptr, nullptr},
    {"attempts", frame_attempts, nullptr, nullptr, nullptr},
    {"copies", frame_copies, nullptr, "The number of unicasts that the frame stands for.", nullptr},
    {"lost", frame_lost, nullptr, nullptr, nullptr},
    {"unicast", frame_unicast, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef frame_methods[] = {{"to", frame_to_target, METH_O, "The frame to one of the targets of a batch."},
                               {nullptr, nullptr, 0, nullptr}};

}  // namespace

const MessageKind& MessageKind::of_type(PyObject* object) {
  static std::unordered_map<PyTypeObject*, std::unique_ptr<MessageKind>> known;
  static PyTypeObject* last_type = nullptr;
  static const MessageKind* last_kind = nullptr;
  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(object);
  if (type == last_type) return *last_kind;
  auto place = known.find(type);
  if (place == known.end()) {
    auto kind = std::make_unique<MessageKind>(inspect(object));
    Py_INCREF(type);  // So that no other class gets its address.
    place = known.emplace(type, std::move(kind)).first;
  }
  last_type = type;
  last_kind = place->second.get();
  return *last_kind;
}

namespace {

// A copy of a struct with one field replaced, as `msgspec.structs.replace`.
Ref replace_field(PyObject* object, const Field& field, Ref value) {
  static PyObject* const name = check(PyUnicode_InternFromString("__copy__"));
  Ref copy = Ref::steal(PyObject_CallMethodNoArgs(object, name));
  field.set(copy.get(), std::move(value));
  return copy;
}

}  // namespace

Ref age_parcel(PyObject* parcel, double waited_s) {
  double before_s = to_double(fields.parcel_waited_s.get(parcel));
  return replace_field(parcel, fields.parcel_waited_s, Ref::steal(PyFloat_FromDouble(before_s + waited_s)));
}

Ref age_message(const MessageKind& kind, PyObject* message, double waited_s) {
  if (!kind.ages_fast) {
    return call_method(message, "age_by", Ref::steal(PyFloat_FromDouble(waited_s)).get());
  }
  if (kind.carries == MessageKind::kParcel) {
    return replace_field(message, fields.message_parcel, age_parcel(fields.message_parcel.get(message), waited_s));
  }
  double left_s = to_double(fields.message_remaining_s.get(message)) - waited_s;
  if (!(left_s > 0)) return Ref::borrow(Py_None);
  return replace_field(message, fields.message_remaining_s, Ref::steal(PyFloat_FromDouble(left_s)));
}

PyObject* Frame::encoded_body() {
  if (body == nullptr) body = call(codec->encode_body.get(), python_message()).release();
  return body;
}

PyObject* Frame::python_message() {
  if (message == nullptr) {
    if (kind->carries == MessageKind::kEvent) {
      Ref hop_count = from_int(hops);
      Ref remaining = Ref::steal(PyFloat_FromDouble(remaining_s));
      PyObject* event = (*events)[static_cast<size_t>(number)].event.get();
      message = call(message_class, event, hop_count.get(), remaining.get()).release();
    } else {
      message = call(message_class, ids_tuple().get()).release();
    }
  }
  return message;
}

void Frame::set_ids(const std::vector<int32_t>& ids) {
  number = ids.empty() ? -1 : ids.front();
  if (ids.size() != 1) more_ids = new std::vector<int32_t>(ids);
  // An array of the tag and an array of ids.
  static std::string packed;
  packed.assign({static_cast<char>(0x92), static_cast<char>(kind->tag)});
  if (ids.size() < 16) {
    packed.push_back(static_cast<char>(0x90 | ids.size()));
  } else {
    packed.append({static_cast<char>(0xdc), static_cast<char>(ids.size() >> 8), static_cast<char>(ids.size())});
  }
  for (int32_t event : ids) packed += (*events)[static_cast<size_t>(event)].id_bytes;
  body = check(PyBytes_FromStringAndSize(packed.data(), static_cast<Py_ssize_t>(packed.size())));
  size_bytes = words.header_bytes + static_cast<int64_t>(packed.size());
}

Ref Frame::ids_tuple() const {
  NodeSpan numbers = ids();
  Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(numbers.size)));
  for (size_t i = 0; i < numbers.size; i++) {
    PyObject* id = (*events)[static_cast<size_t>(numbers.data[i])].id_object.get();
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), Py_NewRef(id));
  }
  return made;
}

FrameRef make_native_frame(int64_t sender, int64_t target, const MessageKind& kind, PyObject* message_class,
                           const std::vector<EventInfo>* events) {
  Frame* frame = allocate();
  frame->sender = sender;
  frame->target = target;
  frame->sent_us = 0;
  frame->size_bytes = 0;
  frame->attempts = 1;
  frame->layer = kDissemination;
  frame->traffic = kind.traffic;
  frame->lost = frame->has_event = frame->complete = false;
  frame->kind = &kind;
  frame->codec = nullptr;
  frame->message = frame->body = frame->token = frame->interface = nullptr;
  frame->targets = nullptr;
  frame->message_class = message_class;
  frame->events = events;
  frame->hops = 0;
  frame->remaining_s = 0.0;
  frame->number = -1;
  frame->more_ids = nullptr;
  return FrameRef(frame);
}

FrameRef make_frame(int64_t sender, int64_t target, int layer, PyObject* message, PyObject* token, int64_t sent_us,
                    PyObject* interface, const LayerCodec* codec) {
  const MessageKind& kind = MessageKind::of(message);
  Frame* frame = allocate();
  frame->sender = sender;
  frame->target = target;
  frame->sent_us = sent_us;
  frame->size_bytes = 0;
  frame->attempts = 1;
  frame->layer = layer;
  frame->lost = false;
  frame->kind = &kind;
  frame->codec = codec;
  frame->message = Py_NewRef(message);
  frame->body = nullptr;
  frame->token = Py_XNewRef(token);
  frame->interface = Py_NewRef(interface);
  frame->targets = nullptr;
  frame->traffic = kind.traffic;
  frame->has_event = false;
  frame->message_class = nullptr;
  frame->events = nullptr;
  frame->more_ids = nullptr;
  FrameRef made(frame);
  PyObject* event = nullptr;
  if (kind.carries == MessageKind::kEvent) {
    event = fields.event_id.get(fields.message_event.get(message));
  } else if (kind.carries == MessageKind::kParcel) {
    PyObject* parcel = fields.message_parcel.get(message);
    frame->traffic = static_cast<int>(to_int(fields.parcel_traffic.get(parcel)));
    event = unless_none(fields.parcel_event.get(parcel));
  }
  if (event != nullptr) {
    PairId id = to_pair(event);
    frame->has_event = true;
    frame->source = id.first;
    frame->sequence = id.second;
  }
  return made;
}

FrameRef frame_to(const Frame& batch, int64_t target) {
  Frame* frame = allocate();
  // Everything but the head of the object.
  PyObject head = frame->ob_base;
  *frame = batch;
  frame->ob_base = head;
  frame->target = target;
  frame->attempts = 1;
  frame->lost = false;
  frame->token = nullptr;
  frame->targets = nullptr;
  frame->more_ids = batch.more_ids == nullptr ? nullptr : new std::vector<int32_t>(*batch.more_ids);
  Py_XINCREF(frame->message);
  Py_XINCREF(frame->body);
  Py_INCREF(frame->interface);
  return FrameRef(frame);
}

void add_frame_type(PyObject* module) {
  frame_type.tp_name = "carrycast._native.Frame";
  frame_type.tp_basicsize = sizeof(Frame);
  frame_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  frame_type.tp_doc = "A message that a medium carries.";
  frame_type.tp_dealloc = frame_dealloc;
  frame_type.tp_getset = frame_values;
  frame_type.tp_methods = frame_methods;
  check_status(PyType_Ready(&frame_type));
  check_status(PyModule_AddObjectRef(module, "Frame", reinterpret_cast<PyObject*>(&frame_type)));
}

Frame* as_frame(PyObject* object) {
  if (Py_TYPE(object) != &frame_type) {
    PyErr_Format(PyExc_TypeError, "a frame of the native engine is needed, not %R", object);
    throw PythonError();
  }
  return reinterpret_cast<Frame*>(object);
}

}  // namespace carrycast
