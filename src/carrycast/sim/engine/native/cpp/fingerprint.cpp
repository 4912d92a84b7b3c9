#include "fingerprint.h"

namespace carrycast {

void Fingerprint::add_frame(int64_t time_us, Frame& frame, NodeSpan receivers) {
  add(words.code_frame, time_us, frame.sender, frame.has_target() ? frame.target : -1);
  put(static_cast<uint8_t>(frame.layer));
  put(frame.kind->tag);
  put(frame.size_bytes);
  if (frame.kind->carries == MessageKind::kEvent) {
    put(frame.source);
    put(frame.sequence);
    if (frame.is_native()) {
      put(frame.hops);
      put(frame.remaining_s);
      put_nodes(receivers);
      return;
    }
    put(to_int(fields.message_hops.get(frame.message)));
    put(to_double(fields.message_remaining_s.get(frame.message)));
    if (!frame.kind->rest.empty()) {
      Ref rest = Ref::steal(PyList_New(0));
      for (PyObject* name : frame.kind->rest) {
        Ref value = Ref::steal(PyObject_GetAttr(frame.message, name));
        check_status(PyList_Append(rest.get(), value.get()));
      }
      put_bytes(call(words.pack, rest.get()).get());
    }
  } else {
    put_bytes(frame.encoded_body());
  }
  put_nodes(receivers);
}

void Fingerprint::flush() {
  if (waiting_.empty() || !update_) return;
  Ref bytes = Ref::steal(PyBytes_FromStringAndSize(waiting_.data(), static_cast<Py_ssize_t>(waiting_.size())));
  call(update_.get(), bytes.get());
  waiting_.clear();
}

}  // namespace carrycast
