#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "nccl.hpp"
#include "side.hpp"
#include <unistd.h>

namespace ccl::perf {
namespace {

constexpr int symmetric_window = 1;  // NCCL_WIN_COLL_SYMMETRIC

/// Returns the ncclDataType_t; negative if there is none.
int nccl_type(DataType type) {
  switch (type) {
    case DataType::int8:
      return 0;
    case DataType::uint8:
      return 1;
    case DataType::int32:
      return 2;
    case DataType::uint32:
      return 3;
    case DataType::int64:
      return 4;
    case DataType::uint64:
      return 5;
    case DataType::float16:
      return 6;
    case DataType::float32:
      return 7;
    case DataType::float64:
      return 8;
    case DataType::bfloat16:
      return 9;
    case DataType::float8_e4m3:
      return 10;
    case DataType::float8_e5m2:
      return 11;
    default:
      return -1;
  }
}

/// Returns the ncclRedOp_t; negative if there is none.
int nccl_op(RedOp redop) {
  switch (redop) {
    case RedOp::sum:
      return 0;
    case RedOp::prod:
      return 1;
    case RedOp::max:
    case RedOp::own:
      return 2;
    case RedOp::min:
      return 3;
    case RedOp::avg:
      return 4;
    default:
      return -1;
  }
}

class NcclSide final : public Contender {
 public:
  NcclSide(const Mode& mode, std::string library) : mode_{mode}, library_{std::move(library)} {}

  Result<Invitation> invite() override {
    CCL_CHECK(open());
    Nccl::Id id;
    CCL_CHECK(nccl_->done(nccl_->get_unique_id(&id), "ncclGetUniqueId"));
    Invitation invitation;
    std::memcpy(invitation.data(), &id, sizeof id);
    return invitation;
  }
  Result<void> join(const Invitation& invitation, int rank, int ranks, int) override {
    CCL_CHECK(open());
    Nccl::Id id;
    std::memcpy(&id, invitation.data(), sizeof id);
    CCL_CHECK(nccl_->done(nccl_->init_rank(&comm_, ranks, id, rank), "ncclCommInitRank"));
    rank_ = rank;
    ranks_ = ranks;
    return {};
  }

  Result<std::byte*> allocate(Index bytes) override {
    if (mode_.memory == Mode::Memory::plain) return gpu::allocate(bytes);
    void* memory = nullptr;
    CCL_CHECK(nccl_->done(nccl_->mem_alloc(&memory, std::size_t(bytes)), "ncclMemAlloc", comm_));
    if (mode_.memory == Mode::Memory::registered) {
      void* handle = nullptr;
      CCL_CHECK(nccl_->done(nccl_->comm_register(comm_, memory, std::size_t(bytes), &handle),
                            "ncclCommRegister", comm_));
    } else {
      if (nccl_->window_register == nullptr) {
        return fail(Errc::not_supported, "this NCCL has no windows (they came with 2.27)");
      }
      Nccl::Window window = nullptr;
      CCL_CHECK(nccl_->done(
          nccl_->window_register(comm_, memory, std::size_t(bytes), &window, symmetric_window),
          "ncclCommWindowRegister", comm_));
      if (window == nullptr) note_ = "NCCL registered no window: it runs as if plain";
    }
    return static_cast<std::byte*>(memory);
  }

  Result<void> prepare(const Choice&, const Shape& shape, DataType type, RedOp redop) override {
    if (shape.reduces() && (nccl_type(type) < 0 || nccl_op(redop) < 0)) {
      return fail(Errc::not_supported, "NCCL does not reduce this type with this operation");
    }
    return {};
  }

  Result<void> run(const Shape& shape, const Call& call, void* stream) override {
    return nccl_->done(queue(shape, call, stream), shape.op.c_str(), comm_);
  }
  Result<void> health() override {
    int result = 0;
    CCL_CHECK(nccl_->done(nccl_->get_async_error(comm_, &result), "ncclCommGetAsyncError", comm_));
    return nccl_->done(result, "what NCCL did in the background", comm_);
  }
  Result<void> leave() override { return nccl_->done(nccl_->destroy(comm_), "ncclCommDestroy"); }
  std::string label() const override { return mode_.name; }
  std::string note() const override { return note_; }

 private:
  Result<void> open() {
    if (nccl_) return {};
    CCL_TRY(nccl_, Nccl::open(library_));
    return {};
  }

  int queue(const Shape& shape, const Call& call, void* stream) {
    // Types without an NCCL type are moved as bytes.
    const int known = nccl_type(call.type);
    const int type = known < 0 ? 0 : known;
    const Index unit = known < 0 ? size_of(call.type) : 1, size = size_of(call.type);
    const auto n = std::size_t(call.count * unit);
    const int op = nccl_op(call.redop);
    const Nccl& nccl = *nccl_;
    if (shape.op == "all_reduce") {
      return nccl.all_reduce(call.send, call.recv, n, type, op, comm_, stream);
    }
    if (shape.op == "reduce") {
      return nccl.reduce(call.send, call.recv, n, type, op, call.root, comm_, stream);
    }
    if (shape.op == "reduce_scatter") {
      return nccl.reduce_scatter(call.send, call.recv, n, type, op, comm_, stream);
    }
    if (shape.op == "all_gather") {
      return nccl.all_gather(call.send, call.recv, n, type, comm_, stream);
    }
    if (shape.op == "broadcast") {
      return nccl.broadcast(call.send, call.recv, n, type, call.root, comm_, stream);
    }
    if (shape.op == "all_to_all" && nccl.all_to_all != nullptr) {
      return nccl.all_to_all(call.send, call.recv, n, type, comm_, stream);
    }
    if (shape.op == "gather" && nccl.gather != nullptr) {
      return nccl.gather(call.send, call.recv, n, type, call.root, comm_, stream);
    }
    if (shape.op == "scatter" && nccl.scatter != nullptr) {
      return nccl.scatter(call.send, call.recv, n, type, call.root, comm_, stream);
    }
    return exchange(shape, call, n, type, unit, size, stream);
  }

  /// Runs an operation that is a group of sends and receives.
  int exchange(const Shape& shape, const Call& call, std::size_t n, int type, Index unit,
               Index size, void* stream) {
    int first = nccl_->group_start();
    const auto keep = [&](int result) { first = first == 0 ? result : first; };
    const auto send = [&](const std::byte* from, std::size_t count, int peer) {
      keep(nccl_->send(from, count, type, peer, comm_, stream));
    };
    const auto recv = [&](std::byte* to, std::size_t count, int peer) {
      keep(nccl_->recv(to, count, type, peer, comm_, stream));
    };
    const Index run = call.count * size;
    if (shape.op == "send_recv") {
      send(call.send, n, call.next);
      recv(call.recv, n, call.prev);
    } else if (shape.op == "gather") {
      send(call.send, n, call.root);
      for (int p = 0; rank_ == call.root && p < ranks_; ++p) recv(call.recv + p * run, n, p);
    } else if (shape.op == "scatter") {
      for (int p = 0; rank_ == call.root && p < ranks_; ++p) send(call.send + p * run, n, p);
      recv(call.recv, n, call.root);
    } else if (shape.op == "all_to_all") {
      for (int p = 0; p < ranks_; ++p) {
        send(call.send + p * run, n, p);
        recv(call.recv + p * run, n, p);
      }
    } else {  // all_to_all_v
      for (int p = 0; p < ranks_; ++p) {
        send(call.send + call.send_offsets[p] * size, std::size_t(call.send_counts[p] * unit), p);
        recv(call.recv + call.recv_offsets[p] * size, std::size_t(call.recv_counts[p] * unit), p);
      }
    }
    keep(nccl_->group_end());
    return first;
  }

  Mode mode_;
  std::string library_, note_;
  std::optional<Nccl> nccl_;
  Nccl::Comm comm_ = nullptr;
  int rank_ = 0, ranks_ = 1;
};

template <std::size_t N>
void put(char (&field)[N], const std::string& text) {
  text.copy(field, N - 1);
}

/// Returns the path of the library that pip installed.
std::string python_library() {
  std::FILE* const python = ::popen(
      "python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>/dev/null", "r");
  if (python == nullptr) return {};
  char line[500] = "";
  if (std::fgets(line, sizeof line, python) == nullptr) line[0] = 0;
  ::pclose(python);
  std::string path{line};
  while (!path.empty() && path.back() == '\n') path.pop_back();
  return path.empty() ? path : path + "/lib/libnccl.so.2";
}

}  // namespace

std::unique_ptr<Contender> make_nccl_side(const Mode& mode, const std::string& library) {
  return std::make_unique<NcclSide>(mode, library);
}

std::vector<Mode> nccl_modes(const Options& options) {
  using Memory = Mode::Memory;
  std::vector<Mode> all = {
      {"plain", true, Memory::plain},
      {"registered", true, Memory::registered},
      {"windows", true, Memory::windows},
      {"windows-32", true, Memory::windows, {{"NCCL_SYM_CTAS", "32"}}},
      {"windows-ce", true, Memory::windows, {{"NCCL_CTA_POLICY", "2"}}, Index{64} << 20}};
  std::vector<Mode> chosen;
  for (Mode& mode : all) {
    const auto& names = options.nccl_modes;
    if (!names.empty() && std::find(names.begin(), names.end(), mode.name) == names.end()) continue;
    // Multicast can put the GPUs of a shared host out of service.
    mode.environment.push_back({"NCCL_NVLS_ENABLE", "0"});
    if (!options.nccl_algo.empty()) mode.environment.push_back({"NCCL_ALGO", options.nccl_algo});
    if (!options.nccl_proto.empty()) mode.environment.push_back({"NCCL_PROTO", options.nccl_proto});
    chosen.push_back(std::move(mode));
  }
  return chosen;
}

NcclFound find_nccl(const std::string& library) {
  NcclFound found;
  std::vector<std::string> candidates;
  if (!library.empty()) {
    candidates = {library};
  } else {
    candidates = {"libnccl.so.2"};
    if (const std::string path = python_library(); !path.empty()) candidates.push_back(path);
  }
  std::string reasons;
  for (const std::string& candidate : candidates) {
    const auto nccl = Nccl::open(candidate);
    if (nccl && nccl->get_version(&found.version) == 0) {
      put(found.library, candidate);
      return found;
    }
    reasons += (reasons.empty() ? "" : "; ") + (nccl ? "no version" : nccl.error().what);
  }
  if (library.empty() && candidates.size() == 1) {
    reasons += "; Python has no package nvidia.nccl";
  }
  put(found.why_none, reasons);
  return found;
}

}  // namespace ccl::perf
