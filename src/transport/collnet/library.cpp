#include "transport/collnet/library.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <variant>

#include "plug_in/library.hpp"
#include "plug_in/symbols.hpp"

namespace ccl::detail::collnet {
namespace {

/// Sets `table` to that of a symbol, one of the list. The symbols are in the order of its types.
template <std::size_t At = 0, class... Tables>
void set_table(std::variant<Tables...>& table, const PlugInSymbol& found) {
  static_assert(sizeof...(Tables) == collnet_plug_in_symbols.size());
  if constexpr (At < sizeof...(Tables)) {
    if (found.symbol != collnet_plug_in_symbols[At]) return set_table<At + 1>(table, found);
    using Table = std::variant_alternative_t<At, std::variant<Tables...>>;
    table = static_cast<Table>(found.object);
  }
}

PropertiesV10 common(const PropertiesV8& of, int device) {
  return in_v10(of, device);
}
PropertiesV10 common(const PropertiesV10& of, int) {
  return of;
}
PropertiesV10 common(const PropertiesV11& of, int) {
  return of.of_v10;
}
PropertiesV10 common(const PropertiesV12& of, int) {
  return in_v10(of);
}

GroupFunctions common(const GroupFunctions& of) {
  return of;
}
GroupFunctions common(const GroupFunctionsV8& of) {
  GroupFunctions all{};
  all.connect = of.connect;
  all.supports = of.supports;
  all.register_memory = of.register_memory;
  all.register_dma_buf = of.register_dma_buf;
  all.deregister_memory = of.deregister_memory;
  all.flush = of.flush;
  all.test = of.test;
  all.close_group = of.close_group;
  all.close_listener = of.close_listener;
  return all;
}

template <class Count, class Part>
int begin_on(const GroupFunctionsOf<Count, Part>& of, NetworkMove move, void* group,
             const PlugIn::Piece& piece, void** request) {
  const auto part = [&](void* memory_handle, void* at) {
    return Part{memory_handle, at, decltype(Part::bytes)(piece.bytes)};
  };
  switch (move) {
    case NetworkMove::all_gather: {
      Part to = part(piece.recv_memory, piece.recv);
      return of.all_gather(group, piece.send, 1, &to, piece.bytes_each, piece.offset, piece.bytes,
                           piece.send_memory, request);
    }
    case NetworkMove::reduce_scatter: {
      Part from = part(piece.send_memory, piece.send);
      return of.reduce_scatter(group, 1, &from, piece.recv, piece.bytes_each, piece.offset,
                               piece.bytes, piece.type, piece.op, piece.recv_memory, request);
    }
    case NetworkMove::all_reduce:
      break;
  }
  const auto size = std::size_t(size_of(network_types[std::size_t(piece.type)]));
  return of.all_reduce(group, piece.send, piece.recv, Count(piece.bytes / size), piece.type,
                       piece.op, piece.send_memory, piece.recv_memory, request);
}

}  // namespace

std::string code_text(int code) {
  constexpr std::array<std::string_view, 9> names{
      "success",        "unhandled CUDA error", "system error",
      "internal error", "invalid argument",     "invalid usage",
      "remote error",   "still in progress",    "timeout"};
  const bool known = code >= 0 && code < int(names.size());
  return fmt::format("{} ({})", code, known ? names[std::size_t(code)] : "unknown");
}

template <class Table>
std::string PlugIn::missing(const Table& table) {
  const auto& of = table.group;
  const std::array<std::pair<const char*, bool>, 12> required{{
      {"name", table.name != nullptr},
      {"init", table.init != nullptr},
      {"devices", table.devices != nullptr},
      {"getProperties", table.properties != nullptr},
      {"listen", table.listen != nullptr},
      {"connect", of.connect != nullptr},
      {"reduceSupport", of.supports != nullptr},
      {"regMr", of.register_memory != nullptr && of.deregister_memory != nullptr},
      {"iallreduce", of.all_reduce != nullptr},
      {"test", of.test != nullptr},
      {"closeColl", of.close_group != nullptr},
      {"closeListen", of.close_listener != nullptr},
  }};
  for (const auto& [what, there] : required) {
    if (!there) return what;
  }
  return {};
}

std::string PlugIn::take(const PlugInSymbol& found) {
  library_ = found.library;
  set_table(table_, found);
  return std::visit(
      [&](const auto* table) -> std::string {
        group_ = common(table->group);
        const std::string what = missing(*table);
        return what.empty() ? what : fmt::format("its version {} has no {}", version(), what);
      },
      table_);
}

Result<PlugIn> PlugIn::find() {
  CCL_TRY(const std::string setting, setting_text("NET_PLUGIN"));
  PlugIn taken;
  std::string missing, incomplete;
  const auto take = [&](const PlugInSymbol& found) {
    const std::string why = taken.take(found);
    if (why.empty()) return true;
    incomplete += fmt::format("{}{}: {}", incomplete.empty() ? "" : "; ", found.library, why);
    return false;
  };
  if (each_plug_in("net", setting, collnet_plug_in_symbols, take, &missing, net_plug_in_symbols)) {
    log_info(LogPart::init, "CollNet plug-in {}", taken.text());
    return taken;
  }
  if (!missing.empty() && !incomplete.empty()) missing += "; ";
  missing += incomplete;
  return fail(Errc::no_transport,
              fmt::format("there is no plug-in for a network that reduces ({}); name its library "
                          "in CCL_NET_PLUGIN",
                          missing.empty() ? "CCL_NET_PLUGIN is none" : missing));
}

const char* function_of(NetworkMove move) {
  switch (move) {
    case NetworkMove::all_gather:
      return "iallgather";
    case NetworkMove::reduce_scatter:
      return "ireducescatter";
    case NetworkMove::all_reduce:
      break;
  }
  return "iallreduce";
}

bool PlugIn::contains(NetworkMove move) const {
  return std::visit(
      [&](const auto* of) {
        switch (move) {
          case NetworkMove::all_gather:
            return of->group.all_gather != nullptr;
          case NetworkMove::reduce_scatter:
            return of->group.reduce_scatter != nullptr;
          case NetworkMove::all_reduce:
            break;
        }
        return of->group.all_reduce != nullptr;
      },
      table_);
}

int PlugIn::begin(NetworkMove move, void* group, const Piece& piece, void** request) const {
  return std::visit(
      [&](const auto* of) { return begin_on(of->group, move, group, piece, request); }, table_);
}

const char* PlugIn::name() const {
  return std::visit([](const auto* of) { return of->name; }, table_);
}

int PlugIn::version() const {
  return std::visit([](const auto* of) { return of->version; }, table_);
}

std::string PlugIn::text() const {
  return fmt::format("{} ({}, version {})", name(), library_, version());
}

int PlugIn::init(void** context, std::uint64_t communicator) const {
  return std::visit(
      [&](const auto* of) {
        if constexpr (requires { of->init(log_of_plug_in); })
          return of->init(log_of_plug_in);
        else
          return of->init(context, communicator, log_of_plug_in);
      },
      table_);
}

int PlugIn::devices(int* count) const {
  return std::visit([&](const auto* of) { return of->devices(count); }, table_);
}

int PlugIn::properties(int device, PropertiesV10* properties) const {
  const auto read = [&]<class Properties>(int (*get)(int, Properties*)) {
    Properties all{};
    const int code = get(device, &all);
    *properties = common(all, device);
    return code;
  };
  return std::visit([&](const auto* of) { return read(of->properties); }, table_);
}

int PlugIn::listen(void* context, int device, void* handle, void** listener) const {
  return std::visit(
      [&](const auto* of) {
        if constexpr (requires { of->listen(device, handle, listener); }) {
          return of->listen(device, handle, listener);
        } else {
          return of->listen(context, device, handle, listener);
        }
      },
      table_);
}

int PlugIn::finalize(void* context) const {
  return std::visit(
      [&](const auto* of) {
        if constexpr (requires { of->finalize; }) {
          return of->finalize == nullptr ? 0 : of->finalize(context);
        } else {
          return 0;
        }
      },
      table_);
}

}  // namespace ccl::detail::collnet
