// A rank that gathers parts of NCCL's communicators that do not fit: the others get an error that
// names it and the value.
#include "nccl/abi/part_rules.hpp"

#include <limits>
#include <memory>
#include <vector>

#include "comm/state.hpp"
#include "nccl/abi/common_settings.hpp"
#include "nccl/abi/operations.hpp"
#include "nccl/functions/grow_id.hpp"
#include "nccl/plug_in/tuner.hpp"
#include "support/error_matchers.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

namespace {

constexpr int biggest = std::numeric_limits<int>::max(), smallest = std::numeric_limits<int>::min();

class NoOperations : public Operations {
 public:
  Result<void> run(const Call&) override { return {}; }
  Result<Choice> choice(const Call&) override { return Choice{}; }
  Result<double> predict(const Call&) const override { return 0.0; }
  Result<void> exchange(std::span<const Call>) override { return {}; }
};

/// Gathers a part that the product would not send, as the part of a call.
template <class Part>
Result<void> say(const Communicator& comm, const Part& part,
                 const detail::RendezvousId& call = {"all_gather"}) {
  detail::CommState& state = *detail::Access::state(comm);
  std::vector<Part> all(std::size_t(comm.ranks()), Part{});
  all[std::size_t(comm.rank())] = part;
  const auto lock = state.rendezvous.lock();
  return state.rendezvous.bootstrap()->all_gather(all.data(), Index{sizeof(Part)}, {}, call);
}

/// The error of the honest rank of two, while the other one, `played`, is played.
Error error_of(int played, const RankBody& bad, const RankBody& honest) {
  Config config;
  config.init_timeout_s = config.timeout_s = 20;
  const auto results = on_ranks(2, config, [&](const Communicator& comm) {
    return comm.rank() == played ? bad(comm) : honest(comm);
  });
  const auto& result = results[std::size_t(1 - played)];
  return result ? Error{} : result.error();
}
void check_named(const Error& error, int rank, const char* why) {
  INFO(error.message() << "\nexpected: " << why);
  CHECK(error.code == Errc::mismatch);
  CHECK(error.peer == rank);
  CHECK(mentions(error.what, why));
}

/// The error of rank 1 in a call, if rank 0 says that it has a tuner plug-in, and that answer.
Error tuned_by(TunerPart present, TunerPart answer) {
  const auto bad = [&](const Communicator& comm) -> Result<void> {
    CCL_CHECK(say(comm, present));
    return present == 1 ? say(comm, answer) : Result<void>{};
  };
  return error_of(0, bad, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto operations, tuned(std::make_unique<NoOperations>(), comm));
    Call call;
    call.kind = Kind::all_reduce;
    call.count = 8;
    call.type = DataType::float32;
    return operations->run(call);
  });
}

}  // namespace

TEST_CASE("what rank 0 says of its tuner plug-in is checked at both ends") {
  CHECK(tuned_by(1, -1).code == Error{}.code);
  CHECK(tuned_by(1, 5).code == Error{}.code);
  check_named(tuned_by(1, -2), 0, "answer of a tuner plug-in is -2, not from -1 to 5");
  check_named(tuned_by(1, 6), 0, "answer of a tuner plug-in is 6, not from -1 to 5");
  check_named(tuned_by(1, smallest), 0, "answer of a tuner plug-in is -2147483648");
  check_named(tuned_by(1, biggest), 0, "answer of a tuner plug-in is 2147483647");
  check_named(tuned_by(2, -1), 0, "presence of a tuner plug-in is 2, not from 0 to 1");
  check_named(tuned_by(-1, -1), 0, "presence of a tuner plug-in is -1");
}

TEST_CASE("settings of another rank are checked at the extremes of each field") {
  for (const int played : {0, 1}) {
    const auto with = [&](const SettingsPart& part, const char* why) {
      const Error error = error_of(
          played, [&](const Communicator& comm) { return say(comm, part, {"CCL_DETERMINISTIC"}); },
          [](const Communicator& comm) -> Result<void> {
            CCL_CHECK(common_settings(comm, {}));
            return {};
          });
      check_named(error, played, why);
    };
    with({3, 0, 0}, "CCL_DETERMINISTIC is 3, not from 0 to 2");
    with({-1, 0, 0}, "CCL_DETERMINISTIC is -1");
    with({0, 2, 0}, "CCL_NCCL_FALLBACK is 2, not from 0 to 1");
    with({0, 0, -1}, "NCCL_CTA_POLICY_ZERO is -1, not from 0 to 1");
  }
}

TEST_CASE("the part of a rank of a communicator that grows is checked") {
  for (const int played : {0, 1}) {
    const auto with = [&](const GrowPart& part, const char* why) {
      const Error error = error_of(
          played, [&](const Communicator& comm) { return say(comm, part, {"ncclCommGrow"}); },
          [](const Communicator& comm) -> Result<void> {
            CCL_CHECK(grow_id(comm, 3, {}));
            return {};
          });
      check_named(error, played, why);
    };
    with({0, 0, {}}, "number of ranks is 0, not from 3 to");
    with({2, 0, {}}, "number of ranks is 2");
    with({biggest, 0, {}}, "number of ranks is 2147483647");
    with({smallest, 0, {}}, "number of ranks is -2147483648");
    with({3, 2, {}}, "presence of an id is 2, not from 0 to 1");
    with({3, -1, {}}, "presence of an id is -1");
    if (played == 1) with({4, 0, {}}, "pass the same number on all ranks");
  }
}

TEST_CASE("the version of another rank's NCCL is one that can be") {
  CHECK(wrong_fallback_part({22903, {}}).empty());
  CHECK(mentions(wrong_fallback_part({0, {}}), "version of NCCL is 0, not from 1 to"));
  CHECK(mentions(wrong_fallback_part({smallest, {}}), "version of NCCL is -2147483648"));
}
