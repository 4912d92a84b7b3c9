// The interface between the network and its media, as in sim/radio/medium.py.
#pragma once
#include <vector>

#include "frame.h"
#include "queue.h"
#include "topology.h"

namespace carrycast {

// The callbacks by which a medium reports frames.
class MediumUpcalls {
 public:
  virtual ~MediumUpcalls() = default;
  // All nodes in `receivers`, possibly none, receive a frame now.
  virtual void on_received(Frame& frame, NodeSpan receivers) = 0;
  // The outcome of a unicast, reported once, after `on_received`; a null pointer if it arrived.
  virtual void on_outcome(Frame& frame, PyObject* failure) = 0;
  // The outcome of a frame that could not be delivered, and of the frames queued behind it.
  virtual void on_unreachable(const std::vector<FrameRef>& frames) = 0;
  // A node within range did not receive a frame, or the frame never left its sender.
  virtual void on_lost(Frame& frame, int64_t node, PyObject* reason) = 0;
  // Several nodes within range did not receive a frame, for the same reason.
  virtual void on_missed(Frame& frame, NodeSpan nodes, PyObject* reason) = 0;
  // Nodes overheard a unicast to another node. Only a `promiscuous` medium reports this.
  virtual void on_overheard(Frame& frame, NodeSpan nodes) = 0;
};

// Carries frames over one interface.
class Medium {
 public:
  Medium(PyObject* interface, size_t nodes) : interface(Ref::borrow(interface)), topology(nodes) {}
  virtual ~Medium() = default;
  Medium(const Medium&) = delete;
  Medium& operator=(const Medium&) = delete;

  Ref interface;
  Topology topology;
  bool promiscuous = false;  // Whether overheard unicasts are reported.

  // Queues a frame of its sender.
  virtual void transmit(FrameRef frame) = 0;
  // Queues the frames of a batch in the order of their targets.
  virtual void transmit_each(FrameRef batch) {
    for (int64_t target : *batch->targets) transmit(frame_to(*batch, target));
  }
  // The time on the air of all attempts of a frame that was received; -1 if frames of this medium take no time.
  virtual int64_t airtime_us(const Frame& frame) const = 0;
  // The expected time to send a packet of 500 bytes over a link.
  virtual double cost_s() const = 0;
};

}  // namespace carrycast
