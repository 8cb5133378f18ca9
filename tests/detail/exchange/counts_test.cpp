#include <ccl/detail/exchange/counts.hpp>
#include <ccl/detail/exchange/mailbox.hpp>

#include <vector>

#include "support/catch.hpp"

namespace {
using namespace ccl;

// Every launch, whatever its shape, leaves all copies of the words that it counts one further.
TEST_CASE("all copies of a count stay equal through launches of any number of blocks") {
  constexpr int copies = 7;
  for (const int lanes : {1, 2, 32}) {
    std::vector<Word> state(detail::PeerExchangeWork::state_words * copies, 0);
    detail::PeerExchangeWork work;
    work.state = {state.data(), copies};
    std::vector<Word> want(detail::PeerExchangeWork::state_words, 0);
    for (int launch = 0; launch < 40; ++launch) {
      work.blocks = launch % copies + 1;
      detail::WordSet<detail::PeerExchangeWork::state_words> words;
      words.part[0] = 0x8001u | unsigned(launch * 37 % 256) << 2;
      for (int block = 0; block < work.blocks; ++block) {
        for (int lane = 0; lane < lanes; ++lane) {
          detail::count_for_absent(work, words, block, lane, lanes);
        }
      }
      for (int word = 0; word < detail::PeerExchangeWork::state_words; ++word) {
        for (int c = 0; c < work.blocks; ++c) CHECK(state[word * copies + c] == want[word]);
      }
      for (int block = 0; block < work.blocks; ++block) {
        for (int lane = 0; lane < lanes; ++lane) {
          detail::count_own(work, words, block, lane, lanes);
        }
      }
      for (int word = 0; word < detail::PeerExchangeWork::state_words; ++word) {
        want[word] += Word{words.contains(word)};
        for (int c = 0; c < copies; ++c) CHECK(state[word * copies + c] == want[word]);
      }
    }
  }
}
}  // namespace
