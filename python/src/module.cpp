// Module ccl._core: the compiled part of the Python package. Buffers are addresses here; the
// package's Python code checks them.
#include <ccl/comm/launcher.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/version.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "blocking.hpp"
#include "collectives.hpp"
#include "comm/observe/departure.hpp"
#include "gpu_calls.hpp"
#include "interpreter_lock.hpp"
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace ccl::python {
namespace {

/// Options of a communicator as Python gives them; see `Config`.
struct Options {
  std::optional<double> timeout_s, init_timeout_s;
  std::optional<bool> check;
  std::optional<Index> memory_budget_bytes;
  std::optional<int> channels;
  std::string name, tune_file;

  Config config() const {
    Config config;
    config.device = Config::cpu;
    config.timeout_s = timeout_s;
    config.init_timeout_s = init_timeout_s;
    config.check = check;
    config.memory_budget_bytes = memory_budget_bytes;
    config.channels = channels;
    config.name = name;
    config.tune_file = tune_file;
    return config;
  }
};

UniqueId id_of(const nb::bytes& given) {
  UniqueId id;
  if (given.size() != id.bytes.size()) {
    raise({Errc::invalid_argument, "an id has 128 bytes (" + std::to_string(given.size()) +
                                       " were given); pass UniqueId.bytes as it is"});
  }
  std::memcpy(id.bytes.data(), given.c_str(), id.bytes.size());
  return id;
}
nb::bytes bytes_of(const UniqueId& id) {
  return nb::bytes{id.bytes.data(), id.bytes.size()};
}

/// A `T` that ends without the GIL: its end may wait for threads that need it, as those of other
/// ranks in this process do.
template <class T>
class Unlocked {
 public:
  template <class... Args>
    requires std::constructible_from<T, Args...>
  explicit Unlocked(Args&&... args) : held_{std::make_unique<T>(std::forward<Args>(args)...)} {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    const LockReleased unlocked;
    held_.reset();
  }
  T& operator*() const { return *held_; }
  T* operator->() const { return held_.get(); }

 private:
  std::unique_ptr<T> held_;
};
using Core = Unlocked<Collectives>;

/// A stream, and what its calls use. That stays until the stream's thread has ended, which Python's
/// collector would not ensure for attributes: of garbage it clears a list before its owner.
class Queue {
 public:
  nb::list kept;

  HostStream& operator*() const { return *stream_; }
  HostStream* operator->() const { return &*stream_; }

 private:
  Unlocked<HostStream> stream_;  // ends before `kept`
};

/// A communicator that Python is to own.
using Made = Core*;
Made made(Communicator comm) {
  return new Core(std::move(comm));
}

Stream stream_of(const Queue* queue) {
  return queue != nullptr ? Stream{&**queue} : Stream{};
}
const void* sent(std::uintptr_t at) {
  return reinterpret_cast<const void*>(at);
}
void* received(std::uintptr_t at) {
  return reinterpret_cast<void*>(at);
}

using Address = std::uintptr_t;
using Counts = std::vector<Index>;

Result<void> wait_for(const Core& core) {
  return core->comm().barrier();
}

Made create(const std::vector<nb::bytes>& given, int rank, int ranks, const Options& options) {
  std::vector<UniqueId> ids;
  for (const nb::bytes& id : given) ids.push_back(id_of(id));
  Config config = options.config();
  config.blocking = false;
  return made(created(begun([&] { return Communicator::create(ids, rank, ranks, config); })));
}
std::vector<Made> create_all(int ranks, const Options& options) {
  std::vector<Made> all;
  for (auto& one : released([&] { return Communicator::create_all(ranks, options.config()); })) {
    all.push_back(made(std::move(one)));
  }
  return all;
}
/// Returns (id, rank, ranks, local rank, launcher) of the launch that this process belongs to.
nb::tuple launched() {
  LaunchEnvironment launch;
  const UniqueId id = released([&]() -> Result<UniqueId> {
    CCL_TRY(launch, detect_launch());
    return launch_id(launch);
  });
  return nb::make_tuple(bytes_of(id), launch.rank, launch.ranks, launch.local_rank,
                        launch.launcher);
}

void bind_communicator(nb::module_& m) {
  nb::class_<Core>(m, "Core")
      .def_static("create", create, "ids"_a, "rank"_a, "ranks"_a, "options"_a)
      .def_static("create_all", create_all, "ranks"_a, "options"_a)
      .def_static(
          "from_env",
          [](const Options& options) {
            Config config = options.config();
            config.blocking = false;
            return made(created(begun([&] { return Communicator::from_env(config); })));
          },
          "options"_a)
      .def_prop_ro("rank", [](const Core& c) { return c->comm().rank(); })
      .def_prop_ro("ranks", [](const Core& c) { return c->comm().ranks(); })
      .def_prop_ro("name", [](const Core& c) { return c->comm().name(); })
      .def(
          "host", [](const Core& c, int rank) { return text(c->comm().peer(rank).host); }, "rank"_a)
      .def_prop_ro("memory_used", [](const Core& c) { return c->comm().memory_used(); })
      .def(
          "split",
          [](const Core& c, int color, int key, const Options& options) -> Made {
            auto part = interruptible(
                c->comm(), [&] { return c->comm().split(color, key, options.config()); });
            return part ? made(std::move(*part)) : nullptr;
          },
          "color"_a, "key"_a, "options"_a)
      .def(
          "shrink",
          [](const Core& c, const std::vector<int>& excluded, bool abort_parent,
             const Options& options) {
            const Shrink parent = abort_parent ? Shrink::abort_parent : Shrink::keep_parent;
            return made(interruptible(
                c->comm(), [&] { return c->comm().shrink(excluded, parent, options.config()); }));
          },
          "excluded"_a, "abort_parent"_a, "options"_a)
      .def("barrier", [](const Core& c) { interruptible(c->comm(), [&] { return wait_for(c); }); })
      .def("finalize",
           [](const Core& c) { interruptible(c->comm(), [&] { return c->comm().finalize(); }); })
      .def("status", [](const Core& c) { released([&] { return c->comm().status(); }); })
      .def("report",
           [](const Core& c) {
             return text(
                 released([&]() -> Result<std::string> { return c->comm().report().text(); }));
           })
      .def(
          "dump",
          [](const Core& c, const std::string& folder) {
            released([&] { return c->comm().dump(folder); });
          },
          "folder"_a)
      .def(
          "abort",
          [](const Core& c, const std::string& why) {
            const LockReleased unlocked;
            c->comm().abort(why);
          },
          "why"_a);
}

template <class F>
auto reducing(F run) {
  return [run](Core& c, Address send, Address recv, Index count, int type, const std::string& op,
               int root, const Queue* stream, Address functor) {
    interruptible(c->comm(), [&] {
      return run(*c, Call{sent(send), received(recv), count, DataType(type), op, root,
                          stream_of(stream), reinterpret_cast<const LoadedFunctor*>(functor)});
    });
  };
}
template <class F>
auto moving(F run) {
  return [run](Core& c, Address send, Address recv, Index count, int type, int root,
               const Queue* stream) {
    interruptible(c->comm(), [&] {
      return run(*c, Move{sent(send), received(recv), count, DataType(type), stream_of(stream)},
                 root);
    });
  };
}

void bind_collectives(nb::object& core) {
  auto c = nb::borrow<nb::class_<Core>>(core);
  const auto reduces = [&](const char* name, auto run) {
    c.def(name, reducing(run), "send"_a, "recv"_a, "count"_a, "type"_a, "op"_a, "root"_a,
          "stream"_a.none(), "functor"_a = Address{0});
  };
  const auto moves = [&](const char* name, auto run) {
    c.def(name, moving(run), "send"_a, "recv"_a, "count"_a, "type"_a, "root"_a, "stream"_a.none());
  };
  reduces("all_reduce", [](Collectives& c, const Call& call) { return c.all_reduce(call); });
  reduces("reduce_scatter",
          [](Collectives& c, const Call& call) { return c.reduce_scatter(call); });
  reduces("reduce", [](Collectives& c, const Call& call) { return c.reduce(call); });
  moves("all_gather", [](Collectives& c, const Move& m, int) { return c.all_gather(m); });
  moves("all_to_all", [](Collectives& c, const Move& m, int) { return c.all_to_all(m); });
  moves("broadcast", [](Collectives& c, const Move& m, int root) { return c.broadcast(m, root); });
  moves("gather", [](Collectives& c, const Move& m, int root) { return c.gather(m, root); });
  moves("scatter", [](Collectives& c, const Move& m, int root) { return c.scatter(m, root); });
  c.def(
      "all_to_all_v",
      [](Core& c, Address send, const Counts& send_counts, const Counts& send_offsets, Address recv,
         const Counts& recv_counts, const Counts& recv_offsets, int type, const Queue* stream) {
        interruptible(c->comm(), [&] {
          return c->all_to_all_v({sent(send), received(recv), 0, DataType(type), stream_of(stream)},
                                 send_counts, send_offsets, recv_counts, recv_offsets);
        });
      },
      "send"_a, "send_counts"_a, "send_offsets"_a, "recv"_a, "recv_counts"_a, "recv_offsets"_a,
      "type"_a, "stream"_a.none());
  c.def(
      "messages",
      [](Core& c, const std::vector<std::tuple<bool, Address, Index, int, int>>& given,
         const Queue* stream) {
        std::vector<AnyMessage> all;
        for (const auto& [sends, at, count, type, peer] : given) {
          all.push_back({sends, received(at), count, DataType(type), peer});
        }
        interruptible(c->comm(), [&] { return c->messages(all, stream_of(stream)); });
      },
      "messages"_a, "stream"_a.none());
}

/// Returns (address, shape, strides in elements or None, DLPack type code, bits, lanes, device
/// type, device id, whether it is read-only, object that keeps the memory) of anything with
/// `__dlpack__` or the buffer protocol.
nb::tuple read_dlpack(nb::handle object) {
  // A writable view is refused where the exporter says that its memory is read-only.
  nb::ndarray<> writable;
  nb::ndarray<nb::ro> array;
  const bool readonly = !nb::try_cast(object, writable, false);
  if (!readonly) {
    array = nb::ndarray<nb::ro>{writable};
  } else if (!nb::try_cast(object, array, false)) {
    throw nb::type_error("no array");
  }
  // The memory belongs to what was exported, which may outlive its exporter.
  const nb::capsule keep{
      new nb::ndarray<nb::ro>(array), [](void* held) noexcept {
        const std::unique_ptr<nb::ndarray<nb::ro>> mine{static_cast<nb::ndarray<nb::ro>*>(held)};
      }};
  nb::list shape, strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i));
  }
  const nb::dlpack::dtype type = array.dtype();
  return nb::make_tuple(reinterpret_cast<Address>(array.data()), nb::tuple(shape),
                        nb::tuple(strides), int(type.code), int(type.bits), int(type.lanes),
                        int(array.device_type()), int(array.device_id()), readonly, keep);
}

/// Returns (address, object that keeps the memory) of an object with the buffer protocol.
nb::tuple address_of(nb::handle object) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_FULL_RO) != 0) throw nb::python_error();
  const auto at = reinterpret_cast<Address>(view->buf);
  const nb::capsule keep{view.release(), [](void* held) noexcept {
                           const std::unique_ptr<Py_buffer> mine{static_cast<Py_buffer*>(held)};
                           PyBuffer_Release(mine.get());
                         }};
  return nb::make_tuple(at, keep);
}

/// Interpreter of the process that has the module; -1: none yet. nanobind's types would become
/// those of a further one, and calls of the first would fail.
std::atomic<std::int64_t> owner{-1};
constexpr const char* owned =
    "another interpreter of this process has imported ccl; import it in one alone, and give the "
    "others processes of their own, as multiprocessing does";

std::int64_t this_interpreter() {
  return PyInterpreterState_GetID(PyInterpreterState_Get());
}
/// Returns false, with an exception set, if another interpreter has the module. Claims nothing:
/// Python may refuse this one afterwards.
bool may_import() {
  const std::int64_t known = owner.load();
  if (known < 0 || known == this_interpreter()) return true;
  PyErr_SetString(PyExc_ImportError, owned);
  return false;
}
void claim() {
  std::int64_t known = -1;
  if (owner.compare_exchange_strong(known, this_interpreter())) return;
  if (known != this_interpreter()) throw nb::import_error(owned);
}

}  // namespace

#define PyInit__core init_core  // which the function below calls
NB_MODULE(_core, m) {
  claim();
#ifdef NDEBUG
  nb::set_leak_warnings(false);  // threads and modules may hold objects at the interpreter's end
#endif
  m.attr("version") = ccl::version;
  m.attr("reduced_types") = Collectives::reduced_types();
  nb::list types;
  for (int i = 0; i < data_type_count; ++i) {
    types.append(nb::make_tuple(std::string{name(DataType(i))}, int(size_of(DataType(i)))));
  }
  m.attr("types") = types;
  m.def("begin_exit", &detail::Departure::begin_exit);

  nb::class_<Options>(m, "Options")
      .def(nb::init<>())
      .def_rw("timeout_s", &Options::timeout_s, nb::arg().none())
      .def_rw("init_timeout_s", &Options::init_timeout_s, nb::arg().none())
      .def_rw("check", &Options::check, nb::arg().none())
      .def_rw("memory_budget_bytes", &Options::memory_budget_bytes, nb::arg().none())
      .def_rw("channels", &Options::channels, nb::arg().none())
      .def_rw("name", &Options::name)
      .def_rw("tune_file", &Options::tune_file);
  nb::class_<Queue>(m, "HostStream")
      .def(nb::init<>())
      .def_rw("kept", &Queue::kept)
      .def(
          "synchronize", [](const Queue& queue, double limit_s) { synchronize(*queue, limit_s); },
          "limit_s"_a);
  m.def("create_unique_id", [] { return bytes_of(released([] { return create_unique_id(); })); });
  m.def(
      "unique_id_at",
      [](const std::string& address, const std::string& key) {
        return bytes_of(released([&] { return unique_id_at(address, key); }));
      },
      "address"_a, "key"_a);
  m.def(
      "start_root",
      [](const nb::bytes& given, int rank) {
        const UniqueId id = id_of(given);
        released([&] { return start_root(id, rank); });
      },
      "id"_a, "rank"_a);
  m.def("launched", launched);
  m.def("read_dlpack", read_dlpack, "object"_a);
  m.def("address_of", address_of, "object"_a);
  bind_communicator(m);
  nb::object core = m.attr("Core");
  bind_collectives(core);
  bind_gpu_calls(m);
}
#undef PyInit__core

extern "C" NB_EXPORT PyObject* PyInit__core();
extern "C" PyObject* PyInit__core() {
  return may_import() ? init_core() : nullptr;
}

}  // namespace ccl::python
