#include "disk.h"

#include <algorithm>
#include <cmath>

namespace carrycast {

namespace {
constexpr double kCostBytes = 500;
constexpr int64_t kNever = -1;
}  // namespace

DiskMedium::DiskMedium(const DiskSettings& settings, PyObject* interface, size_t nodes, Queue& queue,
                       MediumUpcalls& air, PyObject* generator)
    : Medium(interface, nodes), settings_(settings), queue_(queue), air_(air) {
  random_.take_over(generator);
  loss_reason_ = Ref::steal(PyUnicode_InternFromString("loss"));
  if (settings_.rate_bps > 0) {
    free_us_.assign(nodes, 0);
    waiting_.resize(nodes);
  }
}

double DiskMedium::cost_s() const {
  double airtime_s = settings_.rate_bps > 0 ? kCostBytes * 8 / settings_.rate_bps : 0.0;
  return (airtime_s + static_cast<double>(settings_.delay_us) / 1e6) / (1 - settings_.loss);
}

int64_t DiskMedium::airtime_us(const Frame& frame) const {
  if (!(settings_.rate_bps > 0)) return -1;
  double one_us = std::nearbyint(static_cast<double>(frame.size_bytes) * 8e6 / settings_.rate_bps);
  return static_cast<int64_t>(one_us) * frame.attempts * frame.copies();
}

void DiskMedium::transmit(FrameRef frame) {
  if (frame->has_target() && settings_.loss > 0.0) draw_attempts(*frame);
  int64_t now_us = queue_.now_us;
  if (!(settings_.rate_bps > 0)) {
    queue_.at(now_us + settings_.delay_us, &on_arrival_, frame.release());
    return;
  }
  int64_t sender = frame->sender;
  std::deque<WaitingRef>& waiting = remove_started(sender);
  if (static_cast<int64_t>(waiting.size()) >= settings_.queue) {
    air_.on_lost(*frame, sender, words.queue_full);
    // Reported from the event queue, because a handler must not be re-entered while it is sending.
    if (frame->token != nullptr) queue_.at(now_us, &on_refusal_, frame.release());
    return;
  }
  int64_t& free_us = free_us_[static_cast<size_t>(sender)];
  int64_t start_us = std::max(now_us, free_us);
  int64_t frame_us = airtime_us(*frame);
  free_us = start_us + frame_us;
  if (start_us > now_us) {
    waiting.push_back(std::make_shared<Waiting>(Waiting{std::move(frame), start_us, frame_us}));
    schedule(waiting.back());
  } else {
    queue_.at(start_us + frame_us + settings_.delay_us, &on_arrival_, frame.release());
  }
}

void DiskMedium::transmit_each(FrameRef batch) {
  if (!(settings_.rate_bps > 0) && settings_.loss == 0.0) {
    // All frames take the same time, so one entry of the queue is enough.
    queue_.at(queue_.now_us + settings_.delay_us, &on_batch_, batch.release());
  } else {
    Medium::transmit_each(std::move(batch));
  }
}

std::deque<DiskMedium::WaitingRef>& DiskMedium::remove_started(int64_t sender) {
  std::deque<WaitingRef>& waiting = waiting_[static_cast<size_t>(sender)];
  while (!waiting.empty() && waiting.front()->start_us <= queue_.now_us) waiting.pop_front();
  return waiting;
}

void DiskMedium::schedule(const WaitingRef& entry) {
  int64_t due_us = entry->start_us + entry->airtime_us + settings_.delay_us;
  queue_.at(due_us, &on_waited_, new Due{entry, entry->start_us});
}

void DiskMedium::WaitedAction::fire(void* data) {
  std::unique_ptr<Due> due(static_cast<Due*>(data));
  // Otherwise the frame was withdrawn, or sent earlier because a frame before it was.
  if (due->entry->start_us == due->start_us) medium_.arrive(*due->entry->frame);
}

std::vector<FrameRef> DiskMedium::withdraw(int64_t sender, int64_t target) {
  std::vector<FrameRef> withdrawn;
  if (waiting_.empty()) return withdrawn;
  std::deque<WaitingRef>& waiting = remove_started(sender);
  for (const WaitingRef& entry : waiting) {
    if (entry->frame->target == target) withdrawn.push_back(entry->frame);
  }
  if (withdrawn.empty()) return withdrawn;
  int64_t free_us = waiting.front()->start_us;
  std::deque<WaitingRef> kept;
  for (const WaitingRef& entry : waiting) {
    if (entry->frame->target == target) {
      entry->start_us = kNever;
      continue;
    }
    if (entry->start_us != free_us) {
      entry->start_us = free_us;
      schedule(entry);
    }
    free_us += entry->airtime_us;
    kept.push_back(entry);
  }
  waiting = std::move(kept);
  free_us_[static_cast<size_t>(sender)] = free_us;
  return withdrawn;
}

void DiskMedium::draw_attempts(Frame& frame) {
  bool lost = random_.draw() < settings_.loss;
  while (lost && frame.attempts <= settings_.retries) {
    frame.attempts++;
    lost = random_.draw() < settings_.loss;
  }
  frame.lost = lost;
}

void DiskMedium::arrive(Frame& frame) {
  if (!frame.has_target()) {
    NodeSpan reach = topology.reach(frame.sender);
    if (!(settings_.loss > 0.0)) {
      air_.on_received(frame, reach);
      return;
    }
    std::vector<int32_t> heard;
    for (int32_t node : reach) {
      if (random_.draw() < settings_.loss) {
        air_.on_lost(frame, node, loss_reason_.get());
      } else {
        heard.push_back(node);
      }
    }
    air_.on_received(frame, {heard.data(), heard.size()});
    return;
  }
  if (promiscuous) overhear(frame);
  if (!frame.lost && topology.is_linked(frame.sender, frame.target)) {
    int32_t target = static_cast<int32_t>(frame.target);
    air_.on_received(frame, {&target, 1});
    if (frame.token != nullptr) air_.on_outcome(frame, nullptr);
    return;
  }
  air_.on_lost(frame, frame.target, frame.lost ? loss_reason_.get() : words.out_of_reach);
  air_.on_received(frame, {});
  std::vector<FrameRef> failed{FrameRef::borrow(&frame)};
  for (FrameRef& behind : withdraw(frame.sender, frame.target)) {
    air_.on_lost(*behind, frame.sender, words.unreachable);
    failed.push_back(std::move(behind));
  }
  air_.on_unreachable(failed);
}

void DiskMedium::arrive_each(Frame& batch) {
  NodeSpan reach = topology.reach(batch.sender);
  std::vector<int32_t> heard;
  std::vector<int64_t> missed;
  for (int64_t target : *batch.targets) {
    bool is_near = std::any_of(reach.begin(), reach.end(), [target](int32_t node) { return node == target; });
    if (is_near) {
      heard.push_back(static_cast<int32_t>(target));
    } else {
      missed.push_back(target);
    }
  }
  for (int64_t target : missed) air_.on_lost(batch, target, words.out_of_reach);
  air_.on_received(batch, {heard.data(), heard.size()});
  for (int64_t target : missed) air_.on_outcome(*frame_to(batch, target), words.unreachable);
}

void DiskMedium::overhear(Frame& frame) {
  // Drawn at the first attempt; the losses are not reported.
  std::vector<int32_t> others;
  for (int32_t node : topology.reach(frame.sender)) {
    if (node == frame.target) continue;
    if (settings_.loss == 0.0 || random_.draw() >= settings_.loss) others.push_back(node);
  }
  air_.on_overheard(frame, {others.data(), others.size()});
}

void DiskMedium::refuse(Frame& frame) { air_.on_outcome(frame, words.queue_full); }

}  // namespace carrycast
