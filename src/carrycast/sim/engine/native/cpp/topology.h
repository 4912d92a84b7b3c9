// The links between nodes: two nodes are linked if they are in range, both are up, and the link is not cut.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "python.h"

namespace carrycast {

// Some nodes, in order. The memory belongs to somebody else.
struct NodeSpan {
  const int32_t* data = nullptr;
  size_t size = 0;
  const int32_t* begin() const { return data; }
  const int32_t* end() const { return data + size; }
};

// The nodes of a span as a tuple of numbers.
Ref to_tuple(NodeSpan nodes);

class Topology {
 public:
  explicit Topology(size_t nodes);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  int64_t version = 0;  // Changes with every change of a link.
  std::function<void(int64_t)> on_node_down;  // Called when a node has gone down.

  size_t nodes() const { return contacts_.size(); }
  // All neighbors of a node, in the order in which their contacts began. Valid until a link changes.
  NodeSpan reach(int64_t node);
  bool is_linked(int64_t a, int64_t b) const;
  void set_contact(int64_t a, int64_t b, bool up);
  void set_node(int64_t node, bool up);
  void set_cut(int64_t a, int64_t b, bool cut);
  // The neighbors of a node as an object of the class Reach; it is kept until a link changes.
  PyObject* show_reach(int64_t node);

 private:
  bool has(int64_t node) const { return node >= 0 && static_cast<size_t>(node) < contacts_.size(); }
  void forget(int64_t node);

  std::vector<std::vector<int32_t>> contacts_;
  std::vector<bool> up_;
  size_t down_ = 0;
  std::map<std::pair<int64_t, int64_t>, int64_t> cuts_;  // Pair of nodes -> the number of faults that cut its link.
  std::vector<std::vector<int32_t>> filtered_;           // Neighbors without nodes that are down and without cut links.
  std::vector<bool> is_filtered_;
  std::vector<Ref> shown_;
};

// Makes the Python type `Topology`, and an object of it for a topology, which `owner` keeps alive.
void add_topology_type(PyObject* module);
Ref wrap_topology(Topology* topology, PyObject* owner);

}  // namespace carrycast
