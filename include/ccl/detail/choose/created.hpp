#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/choose/candidate.hpp>
#include <ccl/collective/collective.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/choose/facts.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Place of a candidate, which is created or not. `std::optional` in a tuple does the same, but the
/// compiler takes longer: it instantiates hundreds of templates for a list of candidates.
template <std::size_t I, class One>
class CandidatePlace {
 public:
  CandidatePlace() {}
  ~CandidatePlace() {
    if (exists_) one_.~One();
  }
  CandidatePlace(const CandidatePlace&) = delete;
  CandidatePlace& operator=(const CandidatePlace&) = delete;
  /// Moves the candidate here. There must be none.
  void emplace(One&& one) {
    new (&one_) One{static_cast<One&&>(one)};
    exists_ = true;
  }
  explicit operator bool() const { return exists_; }
  const One& operator*() const { return one_; }
  const One* operator->() const { return &one_; }

 private:
  union {
    One one_;
  };
  bool exists_ = false;
};
template <class Indices, class... Ones>
struct CandidatePlaces;
template <std::size_t... I, class... Ones>
struct CandidatePlaces<std::index_sequence<I...>, Ones...> : CandidatePlace<I, Ones>... {
  /// Returns the place of the `At`-th candidate.
  template <std::size_t At>
  auto& at() {
    return find<At>(*this);
  }
  template <std::size_t At>
  const auto& at() const {
    return find<At>(*this);
  }

 private:
  template <std::size_t At, class One>
  static CandidatePlace<At, One>& find(CandidatePlace<At, One>& place) {
    return place;
  }
  template <std::size_t At, class One>
  static const CandidatePlace<At, One>& find(const CandidatePlace<At, One>& place) {
    return place;
  }
};

/// Candidates that an `Auto` has created, with their chooser. They are the candidates that are the
/// fastest at some size, within the memory budget. They are the same on all ranks.
template <class Op, class... Cs, class Transport, bool OneOrder>
struct MadeCandidates<Op, Candidates<Cs...>, Transport, OneOrder> {
  template <class C>
  using One =
      Collective<Op, typename C::Algorithm, typename C::Protocol, TransportOf<C, Transport>>;

  MadeCandidates(Chooser by, const Communicator& of, int number)
      : chooser{std::move(by)}, comm{of}, ranks{number} {}

  Chooser chooser;
  Communicator comm;
  int ranks = 1;
  CandidatePlaces<std::index_sequence_for<Cs...>, One<Cs>...> all;

  /// Returns the value of moved-from handles. It has no candidate.
  static std::shared_ptr<const MadeCandidates> moved_from() {
    static const MadeCandidates* const made = new MadeCandidates{
        {}, detail::Access::communicator(detail::moved_from()), 0};  // never destroyed
    return {std::shared_ptr<void>{}, made};
  }

  /// Creates the candidates. Collective.
  static Result<std::shared_ptr<const MadeCandidates>> make(const Communicator& comm) {
    CCL_TRY(auto chooser, choose(comm, false));
    auto made = std::make_shared<MadeCandidates>(std::move(chooser), comm, comm.ranks());
    // Dropped candidates leave memory for others, so the list may change until all of it is
    // created.
    for (bool settled = false; !settled;) {
      settled = true;
      for (const int at : std::vector<int>{made->chooser.kept()}) {
        CCL_TRY(const bool room, make_one(comm, *made, at));
        if (room) continue;
        settled = false;
        break;
      }
    }
    return made;
  }

  /// Returns the predicted time in us of the candidate that would be picked. Not collective.
  static Result<double> predict(const Communicator& comm, Index bytes) {
    CCL_TRY(const auto chooser, choose(comm, true));
    const int at = chooser.pick(bytes);
    if (at < 0) return fail(chooser.none_meets({}));
    return comm.ranks() == 1 ? 0 : chooser.predict(at, bytes);
  }

  /// Calls f<index, candidate>() for each candidate of the list.
  template <class F>
  static void each(F&& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (f.template operator()<I, Cs>(), ...);
    }(std::index_sequence_for<Cs...>{});
  }

  /// Returns the candidate to run, or a negative number for moved-from handles.
  int pick(Index bytes, bool in_window) const {
    CallConstraints demands;
    demands.in_window = in_window;
    return chooser.pick(bytes, demands);
  }
  std::string name(Index bytes, bool in_window) const {
    const int at = pick(bytes, in_window);
    std::string picked;
    each([&]<std::size_t I, class C>() {
      if (int(I) == at && all.template at<I>()) picked = all.template at<I>()->name();
    });
    return picked;
  }
  Choice plan(Index bytes, bool in_window) const {
    const int at = pick(bytes, in_window);
    if (at < 0) return {};
    Plan plan;
    each([&]<std::size_t I, class C>() {
      if (int(I) == at && all.template at<I>()) plan = all.template at<I>()->plan();
    });
    return chooser.explain(bytes, at, plan);
  }
  /// Tells the other ranks that this one makes a call in another way than by candidate `at`, which
  /// writes windows.
  template <class T>
  Result<void> pass_by(int at, Stream stream) const {
    Result<void> result;
    each([&]<std::size_t I, class C>() {
      if constexpr (writes_windows<typename C::Algorithm>) {
        if (int(I) == at) result = all.template at<I>()->template pass_by<T>(stream);
      }
    });
    return result;
  }
  /// Returns names of the form "Algorithm/Protocol".
  std::vector<std::string> names() const {
    std::vector<std::string> made;
    each([&]<std::size_t I, class C>() {
      if (all.template at<I>()) made.push_back(std::string{C::algo} + "/" + C::proto);
    });
    return made;
  }
  /// Runs the call with any candidate, because a single rank combines nothing.
  template <class Acc, class... Args>
  Result<void> run_alone(Args&&... args) const {
    Result<void> result = fail(Errc::internal, "a rank alone has no candidate");
    bool found = false;
    each([&]<std::size_t I, class C>() {
      if constexpr (!is_hierarchical<typename C::Algorithm>) {
        if (found || !all.template at<I>()) return;
        found = true;
        result = all.template at<I>()->template alone<Acc>(args...);
      }
    });
    return result;
  }

 private:
  static Result<Chooser> choose(const Communicator& comm, bool alone) {
    static const std::array<CandidateFacts, sizeof...(Cs)> facts{facts_of<Op, Cs, Transport>()...};
    return Chooser::create(
        comm, {Op::name, facts, OneOrder, Op::reduces, is_one_of<Op, AllToAllV, SendRecv>, alone});
  }
  /// Returns false if a rank had no memory left.
  static Result<bool> make_one(const Communicator& comm, MadeCandidates& made, int at) {
    static constexpr auto makers = []<std::size_t... I>(std::index_sequence<I...>) {
      return std::array{maker<I, Cs>()...};
    }(std::index_sequence_for<Cs...>{});
    const Maker& maker = makers[std::size_t(at)];
    const auto create = [&]() -> Result<void> {
      if (maker.description == nullptr) return maker.create(comm, made);
      CCL_TRY(auto connections, make_connections(maker.description(), comm, {}, maker.late));
      maker.keep(made, std::move(connections));
      return {};
    };
    if (maker.exists(made)) return true;
    Result<void> created = create();
    if (created && made.chooser.by_network(at)) made.chooser.look_at_network(comm);
    if (created) return true;
    if (made.chooser.by_network(at)) {
      CCL_CHECK(check_ready(comm));
      CCL_CHECK(made.chooser.drop_network(at, created.error()));
      return false;
    }
    // All ranks go on without multicast memory that one of them could not make.
    const bool optional =
        maker.multicasts && check_ready(comm) && created.error().code != Errc::bad_setting;
    if (created.error().code != Errc::over_budget && !optional) {
      return fail(std::move(created).error());
    }
    CCL_CHECK(made.chooser.drop(at, created.error()));
    return false;
  }
  /// Functions of a candidate that create it.
  struct Maker {
    bool (*exists)(const MadeCandidates& made);
    // A composition of its own:
    const Composed& (*description)() = nullptr;
    void (*keep)(MadeCandidates& made, std::shared_ptr<Connections>&& connections) = nullptr;
    bool late = false;
    bool multicasts = false;
    // Several:
    Result<void> (*create)(const Communicator& comm, MadeCandidates& made) = nullptr;
  };
  template <std::size_t I, class C>
  static constexpr Maker maker() {
    Maker maker{[](const MadeCandidates& made) { return bool(made.all.template at<I>()); }};
    maker.multicasts = needs_multicast<typename C::Algorithm>();
    if constexpr (is_hierarchical<typename C::Algorithm>) {
      maker.create = [](const Communicator& from, MadeCandidates& made) -> Result<void> {
        CCL_TRY(auto one, One<C>::create(from));
        made.all.template at<I>().emplace(std::move(one));
        return {};
      };
    } else {
      maker.description = One<C>::description;
      maker.keep = [](MadeCandidates& made, std::shared_ptr<Connections>&& connections) {
        made.all.template at<I>().emplace(One<C>{std::move(connections)});
      };
      maker.late = requires { C::for_order; };
    }
    return maker;
  }
};

}  // namespace ccl::detail
