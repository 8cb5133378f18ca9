#pragma once

#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/types/result.hpp>

#include <memory>
#include <string>
#include <variant>

#include "plug_in/library.hpp"
#include "transport/collnet/abi.hpp"

namespace ccl::detail::collnet {

/// Plug-in for networks that reduce, of any version that ccl knows. Its library stays loaded.
class PlugIn {
 public:
  /// Returns the first plug-in that the libraries of CCL_NET_PLUGIN have, newest version first, as
  /// NCCL finds it: a name is tried as dlopen takes it, then as `libnccl-net-NAME.so`. Without the
  /// setting, `libnccl-net.so` is tried. Fails with `Errc::no_transport` and the reason of each.
  static Result<PlugIn> find();

  const char* name() const;
  int version() const;
  /// Returns "SHARP (libnccl-net.so, version 12)".
  std::string text() const;

  // Each returns the plug-in's code.
  int init(void** context, std::uint64_t communicator) const;
  int devices(int* count) const;
  /// Reads the properties that all versions have.
  int properties(int device, PropertiesV10* properties) const;
  int listen(void* context, int device, void* handle, void** listener) const;
  /// Functions of groups, except for their operations.
  const GroupFunctions& group() const { return group_; }
  /// True if it has the function of an operation, which a plug-in may lack.
  bool contains(NetworkMove move) const;
  /// Operation on a group; see `GroupFunctionsOf`. Of at most the bytes that the device has.
  struct Piece {
    void *send, *recv;
    void *send_memory, *recv_memory;  // registrations
    std::size_t bytes;                // of the window
    std::size_t bytes_each, offset;   // unless it is an all-reduce
    int type, op;                     // unless it is an all-gather
  };
  int begin(NetworkMove move, void* group, const Piece& piece, void** request) const;
  int finalize(void* context) const;

 private:
  PlugIn() = default;
  /// Takes the table of a library. Returns why it cannot, or an empty text.
  std::string take(const PlugInSymbol& found);
  template <class Table>
  static std::string missing(const Table& of);

  std::string library_;
  std::variant<const PlugInV12*, const PlugInV11*, const PlugInV10*, const PlugInV9*,
               const PlugInV8*>
      table_;
  GroupFunctions group_{};  // null operations in version 8
};

/// Returns NCCL's name of the function of an operation: "iallgather".
const char* function_of(NetworkMove move);
/// Returns the text of a code: "3 (internal error)".
std::string code_text(int code);

}  // namespace ccl::detail::collnet
