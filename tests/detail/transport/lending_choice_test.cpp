#include <ccl/detail/transport/lending_choice.hpp>

#include "support/catch.hpp"

using namespace ccl;
using Choice = detail::LendingChoice;
using Transfer = Choice::Transfer;

namespace {
constexpr Index bytes = 64 << 10;
constexpr Word near_ns = 7'000, far_ns = 29'000;  // of a copy into a slot

/// Makes copies that take `ns` each, from `now` on. Returns how many were needed until the choice
/// is `lends`; `most` + 1 if it never is.
int copies_until(Choice& choice, bool lends, Word ns, Word& now, int most = 100) {
  for (int n = 0; n <= most; ++n) {
    if (choice.lends(now) == lends) return n;
    choice.note_copy(bytes, 0, now, now + ns);
    now += ns;
  }
  return most + 1;
}
}  // namespace

TEST_CASE("slices are copied while copies are fast") {
  Choice choice{Choice::Rule::by_time};
  Word now = 1'000'000;
  CHECK(copies_until(choice, true, near_ns, now) == 101);
}

TEST_CASE("the first copies touch new memory, and only many slow ones count") {
  Choice choice{Choice::Rule::by_time};
  Word now = 1'000'000;
  for (int n = 0; n < 8; ++n) {
    choice.note_copy(bytes, 0, now, now + 100'000);
    CHECK(!choice.lends(now));
  }
  CHECK(copies_until(choice, true, near_ns, now) == 101);
  CHECK(copies_until(choice, true, far_ns, now) == 2);
}

TEST_CASE("one interrupted copy changes nothing") {
  Choice choice{Choice::Rule::by_time};
  Word now = 1'000'000;
  (void)copies_until(choice, true, near_ns, now);
  for (int n = 0; n < 50; ++n) {
    choice.note_copy(bytes, 0, now, now + (n % 2 == 0 ? 3'000'000 : near_ns));
    CHECK(!choice.lends(now));
  }
}

TEST_CASE("a rank that lends looks again, at longer and longer intervals") {
  Choice choice{Choice::Rule::by_time};
  Word now = 1'000'000;
  CHECK(copies_until(choice, true, far_ns, now) == 20);
  Word before = 0;
  for (int n = 0; n < 12; ++n) {
    const Word began = now;
    while (choice.lends(now)) now += 1'000;
    const Word waited = now - began;
    CHECK(waited >= before);
    CHECK(waited <= 21'000'000);
    before = waited;
    choice.note_copy(bytes, 0, now, now + far_ns);  // ends the look
    now += far_ns;
    CHECK(choice.lends(now));
  }
  CHECK(before >= 10'000'000);
}

TEST_CASE("slots that the peer has not read for long do not end lending, and near cores do") {
  Choice choice{Choice::Rule::by_time};
  Word now = 1'000'000;
  (void)copies_until(choice, true, far_ns, now);
  while (choice.lends(now)) now += 1'000;
  for (int n = 0; n < 8; ++n) choice.note_copy(bytes, 0, now, now + near_ns);
  choice.note_copy(bytes, 0, now, now + far_ns);
  CHECK(choice.lends(now + far_ns));
  now += 30'000'000;
  CHECK(!choice.lends(now));
  for (int n = 0; n < 20; ++n) choice.note_copy(bytes, 0, now, now + near_ns);
  CHECK(copies_until(choice, true, near_ns, now) == 101);
}

TEST_CASE("what a copy does besides has its time") {
  Choice choice{Choice::Rule::by_time};
  Word now = 1'000'000;
  for (int n = 0; n < 100; ++n) choice.note_copy(bytes, 1, now, now + 24'000);
  CHECK(!choice.lends(now));
  for (int n = 0; n < 2; ++n) choice.note_copy(bytes, 0, now, now + 24'000);
  CHECK(choice.lends(now));
}

TEST_CASE("a rule may be that every slice is lent") {
  Choice choice{Choice::Rule::always};
  choice.note_copy(bytes, 0, 0, near_ns);
  CHECK(choice.lends(0));
  for (const bool is_message : {false, true}) {
    const Choice::Slice slice{.only_sends = true, .is_message = is_message, .past_caches = true};
    CHECK(choice.transfer_of(slice, 0) == Transfer::lend);
  }
}

namespace {
/// A choice of a rank whose copies are slow, at the time `now`.
Choice lending(Word& now) {
  Choice choice{Choice::Rule::by_time};
  now = 1'000'000;
  CHECK(copies_until(choice, true, far_ns, now) == 20);
  return choice;
}
}  // namespace

TEST_CASE("a slice is lent or copied by the time of copies") {
  Word now = 0;
  const Choice near{Choice::Rule::by_time}, far = lending(now);
  for (const bool is_message : {false, true}) {
    for (const bool adds_up : {false, true}) {
      const Choice::Slice slice{.adds_up = adds_up, .is_message = is_message, .past_caches = true};
      CHECK(near.transfer_of(slice, now) == Transfer::timed_copy);
      CHECK(far.transfer_of(slice, now) == Transfer::lend);
    }
  }
}

TEST_CASE("a rank that only sends to receivers that only store fills slots past its caches") {
  Word now = 0;
  const Choice near{Choice::Rule::by_time}, far = lending(now);
  Choice::Slice slice{.only_sends = true, .past_caches = true};
  CHECK(near.transfer_of(slice, now) == Transfer::copy_past_caches);
  CHECK(far.transfer_of(slice, now) == Transfer::copy_past_caches);
  CHECK(Choice::unlent(slice) == Transfer::copy_past_caches);
  slice.past_caches = false;
  CHECK(near.transfer_of(slice, now) == Transfer::timed_copy);
  CHECK(far.transfer_of(slice, now) == Transfer::lend);
  CHECK(Choice::unlent(slice) == Transfer::copy);
}

TEST_CASE("messages of a rank that only sends are never lent") {
  Word now = 0;
  const Choice far = lending(now);
  Choice::Slice slice{.only_sends = true, .is_message = true, .past_caches = true};
  CHECK(far.transfer_of(slice, now) == Transfer::copy_past_caches);
  slice.past_caches = false;
  CHECK(far.transfer_of(slice, now) == Transfer::copy);
}

TEST_CASE("what a receiver adds up is not lent by a rank that only sends, to it alone") {
  Word now = 0;
  const Choice near{Choice::Rule::by_time}, far = lending(now);
  Choice::Slice slice{.only_sends = true, .adds_up = true, .past_caches = true};
  CHECK(near.transfer_of(slice, now) == Transfer::timed_copy);
  CHECK(far.transfer_of(slice, now) == Transfer::copy_past_caches);
  CHECK(Choice::unlent(slice) == Transfer::copy);
  slice.past_caches = false;
  CHECK(far.transfer_of(slice, now) == Transfer::timed_copy);
  slice.to_one_rank = false;
  CHECK(far.transfer_of(slice, now) == Transfer::lend);
}

TEST_CASE("where ranks share cores, what a short call passes on is copied") {
  Word now = 0;
  const Choice far = lending(now);
  constexpr Index mib = Index{1} << 20;
  const Choice::Slice slice{.relayed = true, .crowded = true, .call_bytes = mib - 1};
  CHECK(far.transfer_of(slice, now) == Transfer::timed_copy);
  const auto lends = [&](const auto& change) {
    Choice::Slice other = slice;
    change(other);
    return far.transfer_of(other, now) == Transfer::lend;
  };
  CHECK(lends([](auto& of) { of.call_bytes = mib; }));
  CHECK(lends([](auto& of) { of.crowded = false; }));
  CHECK(lends([](auto& of) { of.relayed = false; }));
  CHECK(lends([](auto& of) { of.adds_up = true; }));
}
