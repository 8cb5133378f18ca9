#include <ccl/detail/numeric/narrow_floats.hpp>
#include <ccl/element/element.hpp>

#include <cmath>
#include <cstring>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

TEMPLATE_TEST_CASE("runs convert as single elements do, at any address and length", "", float16,
                   bfloat16, float8_e4m3, float8_e5m2) {
  constexpr Index size = sizeof(TestType);
  constexpr Index codes = Index{1} << 8 * size;
  std::vector<char> image(size_t(codes * size + 1));
  for (Index i = 0; i < codes; ++i) std::memcpy(image.data() + 1 + i * size, &i, size);
  std::vector<float> wide(codes);
  detail::widen_run<TestType>(image.data() + 1, wide.data(), codes);
  for (Index i = 0; i < codes; ++i) {
    TestType element;
    std::memcpy(static_cast<void*>(&element), &i, size);
    const float want = Element<TestType>::widen(element);
    if (std::isnan(want) ? !std::isnan(wide[i])
                         : std::memcmp(&want, &wide[i], sizeof(float)) != 0) {
      FAIL("code " << i << " became " << wide[i] << ", not " << want);
    }
  }

  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 65'521) {
    const auto u = std::uint32_t(bits);
    float value;
    std::memcpy(&value, &u, 4);
    values.push_back(value);
  }
  const auto count = Index(values.size());
  std::vector<char> narrow(size_t(count * size + 1));
  detail::narrow_run<TestType>(values.data(), narrow.data() + 1, count);
  for (Index i = 0; i < count; ++i) {
    const TestType want = Element<TestType>::narrow(values[i]);
    TestType got;
    std::memcpy(static_cast<void*>(&got), narrow.data() + 1 + i * size, size);
    if (std::isnan(values[i]) ? !std::isnan(float(got)) : std::memcmp(&want, &got, size) != 0) {
      FAIL(values[i] << " became " << float(got) << ", not " << float(want));
    }
  }

  for (Index n = 0; n < 20; ++n) {
    std::vector<char> out(size_t(21 * size), 77);
    detail::narrow_run<TestType>(values.data() + 16'000, out.data(), n);
    CHECK(std::memcmp(out.data(), narrow.data() + 1 + 16'000 * size, size_t(n * size)) == 0);
    CHECK(out[size_t(n * size)] == 77);
  }
}
