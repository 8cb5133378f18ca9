#pragma once

#include <ccl/types/error.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/fork_mutex.hpp"
#include "plug_in/library.hpp"
#include "plug_in/symbols.hpp"
#include "transport/plug_in/net_abi.hpp"

namespace ccl::detail {

/// Device of a network plug-in.
struct NetDevice {
  std::string name, pci_path;
  int memory = 0;  // kinds that it takes, as bits: see `net_abi::Memory`
  bool flushes = false;
  bool by_host = true;  // false: a GPU's own code must drive it
  Index max_bytes = 0;  // of a message
  int mbps = 0;
  int port = 0;
};

/// Bytes by which a sender finds a receiver.
using NetHandle = std::array<std::byte, net_abi::handle_bytes>;

struct NetStep;

/// Network plug-in of NCCL, the same for all versions of its interface. Each function returns the
/// plug-in's result.
///
/// A call may come from any thread. Calls for one connection come from one thread at a time.
class NetPlugIn {
 public:
  /// Symbols of all versions, newest first.
  static constexpr auto symbols = net_plug_in_symbols;
  /// Returns the plug-in of a symbol, or fails if it lacks a function.
  static Result<std::unique_ptr<const NetPlugIn>> of(const PlugInSymbol& found);
  virtual ~NetPlugIn() = default;

  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }  // of its interface: "12"
  /// Text for messages: "network plug-in Sockets (libnccl-net.so, version 12)".
  std::string text() const;

  /// Makes a communicator's context. Versions up to 10 have none, and initialize the process once.
  virtual int init(void** context, std::uint64_t communicator) const = 0;
  virtual int finalize(void* context) const = 0;
  virtual int devices(int& count) const = 0;
  virtual int properties(int device, NetDevice& out) const = 0;
  virtual int listen(void* context, int device, NetHandle& handle, void** listener) const = 0;
  /// Sets `comm` once the connection is made, else to null. `accept`, too.
  virtual int connect(void* context, int device, NetHandle& handle, void** comm) const = 0;
  virtual int accept(void* listener, void** comm) const = 0;
  virtual int reg(void* comm, void* at, std::size_t bytes, int kind, void** handle) const = 0;
  virtual int reg_dma_buf(void* comm, void* at, std::size_t bytes, int fd, void** handle) const = 0;
  virtual int dereg(void* comm, void* handle) const = 0;
  /// Sets `request` to null if the call must be repeated. The others, too. `step`: for events of
  /// the plug-in (version 10 and later) until the request is done; null: there are none.
  virtual int isend(void* comm, void* at, std::size_t bytes, void* handle, NetStep* step,
                    void** request) const = 0;
  virtual int irecv(void* comm, void* at, std::size_t bytes, void* handle, NetStep* step,
                    void** request) const = 0;
  virtual int iflush(void* comm, void* at, std::size_t bytes, void* handle,
                     void** request) const = 0;
  /// `bytes`: those that were received, if the request is done.
  virtual int test(void* request, bool& done, Index& bytes) const = 0;
  virtual int close_send(void* comm) const = 0;
  virtual int close_recv(void* comm) const = 0;
  virtual int close_listen(void* listener) const = 0;

  /// Name of the function of the process that runs: `init`, `finalize`, `devices` or
  /// `getProperties`, of any communicator; null: none. They run one at a time.
  const char* running() const { return running_.load(); }

  /// Error of a function: the plug-in, its result as text and number, and `doing`.
  Error error(const char* function, int result, std::string_view doing) const;

 protected:
  NetPlugIn(const char* name, const PlugInSymbol& found);
  /// A function of the process, which runs alone, as NCCL calls it.
  class Alone {
   public:
    Alone(const NetPlugIn& of, const char* function) : lock_{of.mutex_}, running_{of.running_} {
      running_.store(function);
    }
    ~Alone() { running_.store(nullptr); }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

   private:
    const std::lock_guard<ForkMutex> lock_;
    std::atomic<const char*>& running_;
  };

 private:
  mutable ForkMutex mutex_{[] {}};
  mutable std::atomic<const char*> running_{nullptr};
  const std::string name_, library_, version_;
};

/// Text of a plug-in's result: "ncclRemoteError (6)".
std::string net_result_text(int result);

}  // namespace ccl::detail
