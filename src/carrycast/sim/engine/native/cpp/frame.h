// Frames: messages that a medium carries.
#pragma once
#include <string>
#include <vector>

#include "topology.h"
#include "words.h"

namespace carrycast {

// What the core needs to know about a class of messages.
struct MessageKind {
  enum Carries { kNothing, kEvent, kParcel };
  Carries carries = kNothing;
  int traffic = kControl;
  uint16_t tag = 0;
  bool ages_fast = false;  // Whether `age_message` has a faster way than the method `age_by`.
  std::vector<PyObject*> rest;  // The fields of a message with an event, besides those of EventMessage.

  // The kind of a class of messages; the answer is kept.
  static const MessageKind& of_type(PyObject* type);
  static const MessageKind& of(PyObject* message) { return of_type(reinterpret_cast<PyObject*>(Py_TYPE(message))); }
};

struct EventInfo;

// The length of a number in MessagePack; 0 if it is negative.
inline int64_t packed_length(int64_t number) {
  if (number < 0) return 0;
  return number < 128 ? 1 : number < 256 ? 2 : number < 65536 ? 3 : number < 4294967296 ? 5 : 9;
}

// The target of a broadcast and of a batch.
constexpr int64_t kNoTarget = INT64_MIN;

// Encodes the messages of one layer.
struct LayerCodec {
  Ref header;       // The bytes before each message.
  Ref encode_body;  // Encodes a message without the header.
};

// A Python object with the attributes of `carrycast.sim.radio.Frame`. A frame to several targets is a `UnicastBatch`.
struct Frame {
  PyObject_HEAD
  int64_t sender;
  int64_t target;  // Or kNoTarget.
  int64_t sent_us;
  int64_t size_bytes;  // The length of the encoded frame.
  int64_t attempts;
  int64_t source, sequence;  // The id of the event that the message carries, if `has_event`.
  int layer;
  int traffic;
  bool lost;
  bool has_event;
  const MessageKind* kind;
  const LayerCodec* codec;  // Belongs to the core, which outlives its frames.
  PyObject* message;  // Null for the message of a native protocol, until Python code asks for it.
  PyObject* body;   // The encoded message without header; null until it is needed.
  PyObject* token;  // Null if the sender wants no outcome.
  PyObject* interface;
  std::vector<int64_t>* targets;  // Only of a batch.

  // The message of a native protocol: its class, and either an event with its hops and its remaining lease, or the ids
  // of events.
  PyObject* message_class;  // Borrowed; null if a Python protocol made the message.
  const std::vector<EventInfo>* events;
  int64_t hops;
  double remaining_s;
  int32_t number;  // The event, or the only id.
  bool complete;   // Whether the sender put all its ids into the message.
  std::vector<int32_t>* more_ids;  // The ids, if there is not exactly one.

  bool has_target() const { return target != kNoTarget; }
  bool is_unicast() const { return has_target() || targets != nullptr; }
  int64_t copies() const { return targets == nullptr ? 1 : static_cast<int64_t>(targets->size()); }
  // The encoded message without header. Borrowed.
  PyObject* encoded_body();
  bool is_native() const { return message_class != nullptr; }
  // The message as a Python object. Borrowed.
  PyObject* python_message();
  NodeSpan ids() const {
    return more_ids == nullptr ? NodeSpan{&number, 1} : NodeSpan{more_ids->data(), more_ids->size()};
  }
  // Sets the ids of a native message, and encodes it.
  void set_ids(const std::vector<int32_t>& ids);
  Ref ids_tuple() const;
  PyObject* object() { return reinterpret_cast<PyObject*>(this); }
};

// An owned reference to a frame.
class FrameRef {
 public:
  FrameRef() = default;
  explicit FrameRef(Frame* owned) : frame_(owned) {}
  FrameRef(const FrameRef& other) : frame_(other.frame_) { Py_XINCREF(frame_); }
  FrameRef(FrameRef&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  FrameRef& operator=(FrameRef other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~FrameRef() { Py_XDECREF(frame_); }
  static FrameRef borrow(Frame* frame) {
    Py_INCREF(frame);
    return FrameRef(frame);
  }
  Frame* get() const { return frame_; }
  Frame* operator->() const { return frame_; }
  Frame& operator*() const { return *frame_; }
  Frame* release() { return std::exchange(frame_, nullptr); }

 private:
  Frame* frame_ = nullptr;
};

// Makes a frame without encoding it. Its size is computed by the caller.
FrameRef make_frame(int64_t sender, int64_t target, int layer, PyObject* message, PyObject* token, int64_t sent_us,
                    PyObject* interface, const LayerCodec* codec);
// Makes a frame with the message of a native protocol, whose content and size are set by the caller.
FrameRef make_native_frame(int64_t sender, int64_t target, const MessageKind& kind, PyObject* message_class,
                           const std::vector<EventInfo>* events);
// The frame of a batch to one of its targets.
FrameRef frame_to(const Frame& batch, int64_t target);

// A message after it has waited, as its method `age_by`: None if its lease is over. Longer than 0 s.
Ref age_message(const MessageKind& kind, PyObject* message, double waited_s);
// A parcel after it has waited.
Ref age_parcel(PyObject* parcel, double waited_s);

void add_frame_type(PyObject* module);
// The frame that a Python object is; throws if it is none.
Frame* as_frame(PyObject* object);

}  // namespace carrycast
