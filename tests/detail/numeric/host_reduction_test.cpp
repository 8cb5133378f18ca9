// CPU lanes that know a reduction by its loops alone do what lanes that know its type do.
#include <ccl/detail/numeric/host_reduction.hpp>
#include <ccl/detail/wire/solo_move.hpp>

#include <cstring>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {
template <class F, class T>
void agree(F functor) {
  using R = detail::Reduction<F, T>;
  const R reduction = R{functor, 5}.load();
  const auto by_loops = detail::host_reduction<4>(reduction);
  CHECK(detail::changes_own(by_loops) == R::prepares);
  constexpr Index n = 5000;  // more than a block
  std::vector<std::vector<T>> data(5, std::vector<T>(n));
  for (std::size_t k = 0; k < data.size(); ++k) {
    for (Index i = 0; i < n; ++i) data[k][std::size_t(i)] = T(float((i * 3 + Index(k) * 7) % 11));
  }
  for (int sources = 0; sources <= 4; ++sources) {
    const void* from[4] = {};
    for (int s = 0; s < sources; ++s) from[s] = data[std::size_t(s) + 1].data();
    std::vector<T> out[2][2], slot[2][2];
    for (int typed = 0; typed < 2; ++typed) {
      for (int finish = 0; finish < 2; ++finish) {
        auto& to = out[typed][finish];
        auto& sent = slot[typed][finish];
        to.resize(n), sent.resize(n);
        void* slots[] = {sent.data()};
        const auto move = [&]<bool Finish>(const auto& how) {
          using How = std::remove_cvref_t<decltype(how)>;
          detail::move_elements<How, Finish, 4>(how, to.data(), slots, 1, data[0].data(), from,
                                                sources, n);
        };
        if (typed != 0 && finish != 0) move.template operator()<true>(reduction);
        if (typed != 0 && finish == 0) move.template operator()<false>(reduction);
        if (typed == 0 && finish != 0) move.template operator()<true>(by_loops);
        if (typed == 0 && finish == 0) move.template operator()<false>(by_loops);
      }
    }
    for (int finish = 0; finish < 2; ++finish) {
      CHECK(std::memcmp(out[0][finish].data(), out[1][finish].data(), n * sizeof(T)) == 0);
      CHECK(std::memcmp(slot[0][finish].data(), out[1][finish].data(), n * sizeof(T)) == 0);
    }
  }
}
}  // namespace

TEST_CASE("the loops of a reduction stand for it on CPU lanes") {
  agree<Sum, float>({});
  agree<Max, std::int8_t>({});
  agree<Avg, float16>({});
  agree<PreMulSum, bfloat16>(PreMulSum{0.5});
  agree<Prod, double>({});
}
