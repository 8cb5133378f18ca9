#include "transport/plug_in/net_plug_in.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "base/forks.hpp"
#include "transport/plug_in/events.hpp"

namespace ccl::detail {
namespace {

constexpr int message_tag = 1;  // the only messages of a connection

/// Versions from 11 on have a context for each communicator.
template <class Interface>
constexpr bool has_contexts = requires(const Interface& of) { of.finalize; };
template <class Interface>
constexpr bool has_events = std::is_same_v<decltype(Interface::transfer), net_abi::Transfer>;

template <class Interface>
class PlugInOf final : public NetPlugIn {
 public:
  PlugInOf(const Interface& of, const PlugInSymbol& found) : NetPlugIn{of.name, found}, of_{of} {}

  /// Name of a function that the plug-in lacks, or null.
  static const char* missing(const Interface& of) {
    const std::pair<bool, const char*> all[] = {
        {of.name != nullptr, "name"},
        {of.init != nullptr, "init"},
        {of.devices.count != nullptr, "devices"},
        {of.properties.get != nullptr, "getProperties"},
        {of.listen != nullptr, "listen"},
        {of.connect != nullptr, "connect"},
        {of.accept != nullptr, "accept"},
        {of.registration.reg != nullptr, "regMr"},
        {of.registration.dereg != nullptr, "deregMr"},
        {of.transfer.isend != nullptr, "isend"},
        {of.transfer.irecv != nullptr, "irecv"},
        {of.completion.test != nullptr, "test"},
        {of.completion.close_send != nullptr, "closeSend"},
        {of.completion.close_recv != nullptr, "closeRecv"},
        {of.completion.close_listen != nullptr, "closeListen"}};
    for (const auto& [has, name] : all) {
      if (!has) return name;
    }
    return nullptr;
  }

  int init(void** context, std::uint64_t communicator) const override {
    const Alone alone{*this, "init"};
    net_abi::CommConfig config;
    if constexpr (has_contexts<Interface>) {
      return of_.init(context, communicator, &config, log_of_plug_in, report_net_event);
    } else {
      *context = nullptr;
      if (begun_ && process_ == forks_before()) return net_abi::success;
      int result = net_abi::success;
      if constexpr (requires { of_.init(log_of_plug_in); }) {
        result = of_.init(log_of_plug_in);
      } else {
        result = of_.init(log_of_plug_in, report_net_event);
      }
      begun_ = result == net_abi::success;
      process_ = forks_before();
      return result;
    }
  }
  int finalize(void* context) const override {
    if constexpr (has_contexts<Interface>) {
      const Alone alone{*this, "finalize"};
      return of_.finalize == nullptr ? net_abi::success : of_.finalize(context);
    }
    return net_abi::success;
  }
  int devices(int& count) const override {
    const Alone alone{*this, "devices"};
    count = 0;
    return of_.devices.count(&count);
  }
  int properties(int device, NetDevice& out) const override {
    const Alone alone{*this, "getProperties"};
    properties_of<decltype(of_.properties.get)> all{};
    const int result = of_.properties.get(device, &all);
    if (result != net_abi::success) return result;
    out.name = all.name == nullptr ? "" : all.name;
    out.pci_path = all.pci_path == nullptr ? "" : all.pci_path;
    out.memory = all.memory;
    out.flushes = all.flushes != 0;
    out.by_host = all.driver == net_abi::driven_by_host;
    out.max_bytes = Index(std::min(all.max_bytes, std::size_t{1} << 40));
    out.mbps = all.mbps;
    out.port = all.port;
    return result;
  }
  int listen(void* context, int device, NetHandle& handle, void** listener) const override {
    *listener = nullptr;
    if constexpr (has_contexts<Interface>) {
      return of_.listen(context, device, handle.data(), listener);
    } else {
      return of_.listen(device, handle.data(), listener);
    }
  }
  int connect(void* context, int device, NetHandle& handle, void** comm) const override {
    *comm = nullptr;
    void* on_device = nullptr;
    net_abi::CommConfig config;
    if constexpr (has_contexts<Interface>) {
      return of_.connect(context, device, handle.data(), comm, &on_device);
    } else if constexpr (has_events<Interface>) {
      return of_.connect(device, &config, handle.data(), comm, &on_device);
    } else {
      return of_.connect(device, handle.data(), comm, &on_device);
    }
  }
  int accept(void* listener, void** comm) const override {
    *comm = nullptr;
    void* on_device = nullptr;
    return of_.accept(listener, comm, &on_device);
  }
  int reg(void* comm, void* at, std::size_t bytes, int kind, void** handle) const override {
    *handle = nullptr;
    return of_.registration.reg(comm, at, bytes, kind, handle);
  }
  int reg_dma_buf(void* comm, void* at, std::size_t bytes, int fd, void** handle) const override {
    *handle = nullptr;
    if (of_.registration.reg_dma_buf == nullptr) return net_abi::invalid_usage;
    return of_.registration.reg_dma_buf(comm, at, bytes, net_abi::gpu_memory, 0, fd, handle);
  }
  int dereg(void* comm, void* handle) const override {
    return of_.registration.dereg(comm, handle);
  }
  int isend(void* comm, void* at, std::size_t bytes, void* handle, NetStep* step,
            void** request) const override {
    *request = nullptr;
    if constexpr (has_events<Interface>) {
      return of_.transfer.isend(comm, at, bytes, message_tag, handle, step, request);
    } else {
      return of_.transfer.isend(comm, at, bytes, message_tag, handle, request);
    }
  }
  int irecv(void* comm, void* at, std::size_t bytes, void* handle, NetStep* step,
            void** request) const override {
    *request = nullptr;
    int tag = message_tag;
    if constexpr (has_events<Interface>) {
      void* event = step;
      return of_.transfer.irecv(comm, 1, &at, &bytes, &tag, &handle, &event, request);
    } else {
      return of_.transfer.irecv(comm, 1, &at, &bytes, &tag, &handle, request);
    }
  }
  int iflush(void* comm, void* at, std::size_t bytes, void* handle, void** request) const override {
    *request = nullptr;
    if (of_.completion.iflush == nullptr) return net_abi::success;
    int size = int(bytes);
    return of_.completion.iflush(comm, 1, &at, &size, &handle, request);
  }
  int test(void* request, bool& done, Index& bytes) const override {
    int is_done = 0, size = 0;
    const int result = of_.completion.test(request, &is_done, &size);
    done = result == net_abi::success && is_done != 0;
    bytes = size;
    return result;
  }
  int close_send(void* comm) const override { return of_.completion.close_send(comm); }
  int close_recv(void* comm) const override { return of_.completion.close_recv(comm); }
  int close_listen(void* listener) const override { return of_.completion.close_listen(listener); }

 private:
  template <class Properties>
  static Properties properties_type(net_abi::Result (*)(int, Properties*));
  template <class Get>
  using properties_of = decltype(properties_type(Get{}));

  const Interface& of_;
  // Changed by the function that runs alone.
  mutable bool begun_ = false;
  mutable int process_ = 0;
};

template <class Interface>
Result<std::unique_ptr<const NetPlugIn>> make(const PlugInSymbol& found) {
  const auto& of = *static_cast<const Interface*>(found.object);
  if (const char* const missing = PlugInOf<Interface>::missing(of)) {
    return fail(Errc::not_supported, fmt::format("the network plug-in {} ({}) has no {}",
                                                 found.library, found.symbol, missing));
  }
  return std::make_unique<const PlugInOf<Interface>>(of, found);
}

}  // namespace

NetPlugIn::NetPlugIn(const char* name, const PlugInSymbol& found)
    : name_{name},
      library_{found.library},
      version_{found.symbol.substr(found.symbol.rfind('v') + 1)} {}

Result<std::unique_ptr<const NetPlugIn>> NetPlugIn::of(const PlugInSymbol& found) {
  using namespace net_abi;
  if (found.symbol == symbols[0]) return make<InterfaceV11<PropertiesV12>>(found);
  if (found.symbol == symbols[1]) return make<InterfaceV11<PropertiesV11>>(found);
  if (found.symbol == symbols[2]) return make<InterfaceV10>(found);
  return make<InterfaceV9>(found);
}

std::string NetPlugIn::text() const {
  return fmt::format("network plug-in {} ({}, version {})", name_, library_, version_);
}

std::string net_result_text(int result) {
  constexpr const char* names[] = {
      "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
      "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};
  const bool known = result >= 0 && std::size_t(result) < std::size(names);
  return fmt::format("{} ({})", known ? names[result] : "an unknown result", result);
}

Error NetPlugIn::error(const char* function, int result, std::string_view doing) const {
  const Errc code = result == net_abi::remote_error ? Errc::peer_lost
                    : result == net_abi::cuda_error ? Errc::cuda
                                                    : Errc::network;
  return {code, fmt::format("{} of the {} gave {} {}; its lines in the log (CCL_DEBUG=INFO) may "
                            "tell why",
                            function, text(), net_result_text(result), doing)};
}

}  // namespace ccl::detail
