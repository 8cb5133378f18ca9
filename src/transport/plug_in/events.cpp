#include "transport/plug_in/events.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"

namespace ccl::detail {
namespace {

enum EventCall : int { event_start, event_stop, event_update, event_update_and_stop };

/// Event of a plug-in that has begun, by the number that the plug-in has for it.
struct Known {
  std::weak_ptr<LineListener> line;
  Word number = 0;  // of the line's
};
struct Events {
  std::map<std::uintptr_t, Known> all;
  std::uintptr_t last = 0;
  ForkMutex mutex{[this] { renew(all); }};
};
constinit MadeOnce<Events> events;

void* begin(const NetStep& of, std::int64_t kind, void* data) {
  const auto line = of.line.lock();
  const Word number = line == nullptr ? 0 : line->begin_of_plug_in(of.step, kind, data);
  if (number == 0) return nullptr;
  Events& known = events.get();
  const std::lock_guard lock{known.mutex};
  known.all[++known.last] = {of.line, number};
  return reinterpret_cast<void*>(known.last);
}

/// Takes the event out of the table if it ends. Returns none if it is not known.
Known find(void* event, bool ends) {
  Events& known = events.get();
  const std::lock_guard lock{known.mutex};
  const auto found = known.all.find(reinterpret_cast<std::uintptr_t>(event));
  if (found == known.all.end()) return {};
  Known one = found->second;
  if (ends) known.all.erase(found);
  return one;
}

}  // namespace

net_abi::Result report_net_event(void** event, int type, void* parent, std::int64_t kind,
                                 void* data) {
  if (event == nullptr) return net_abi::success;
  if (type == event_start) {
    void* begun = nullptr;
    if (parent != nullptr) {
      (void)completes([&] { begun = begin(*static_cast<const NetStep*>(parent), kind, data); });
    }
    *event = begun;
    return net_abi::success;
  }
  const bool known = type > event_start && type <= event_update_and_stop;
  if (*event == nullptr || !known) return net_abi::success;
  const bool ends = type != event_update;
  (void)completes([&] {
    const Known one = find(*event, ends);
    const auto line = one.line.lock();
    if (line == nullptr) return;
    if (type != event_stop) line->update_of_plug_in(one.number, data);
    if (ends) line->end_of_plug_in(one.number);
  });
  return net_abi::success;
}

}  // namespace ccl::detail
