// The fingerprint: a hash over all facts of a run, as in sim/engine/observers/fingerprint.py.
#pragma once
#include <cstring>
#include <string>

#include "frame.h"
#include "topology.h"

namespace carrycast {

class Fingerprint {
 public:
  // `update` is the method of a hash that takes further bytes.
  void set_hash(PyObject* update) { update_ = Ref::borrow(update); }

  // Begins a fact; its other fields follow.
  void add(int64_t code, int64_t time_us, int64_t node, int64_t peer) {
    if (waiting_.size() > kChunkBytes) flush();
    put(static_cast<uint8_t>(code));
    put(time_us);
    put(node);
    put(peer);
  }
  template <class T>
  void put(T number) {
    waiting_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void put_bytes(const char* bytes, size_t size) { waiting_.append(bytes, size); }
  void put_bytes(PyObject* bytes) {
    waiting_.append(PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes)));
  }
  void put_nodes(NodeSpan nodes) {
    size_t before = waiting_.size();
    waiting_.resize(before + nodes.size * sizeof(int64_t));
    char* place = waiting_.data() + before;
    for (int32_t node : nodes) {
      int64_t wide = node;
      std::memcpy(place, &wide, sizeof(wide));
      place += sizeof(wide);
    }
  }
  // A transmission: tag, size, ids and fields of its message, and the ids of its receivers.
  void add_frame(int64_t time_us, Frame& frame, NodeSpan receivers);
  // Passes on all bytes so far.
  void flush();

 private:
  static constexpr size_t kChunkBytes = 1 << 16;
  std::string waiting_;
  Ref update_;
};

}  // namespace carrycast
