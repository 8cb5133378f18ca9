#pragma once

// A target defines the three functions below. `ccl.fuzz.NAME --seeds=FOLDER` writes its seeds,
// which the product's own writers make, and ends.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::fuzz {

using Input = std::span<const std::byte>;

/// Runs once, before the first input.
void prepare();
/// Reads one input as the product would. Crashes are found by sanitizers.
void read(Input input);
std::vector<std::string> seeds();

/// Ends the program if the product contradicts itself.
inline void demand(bool truth, const char* what) {
  if (truth) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

inline std::string_view text_of(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}
/// The bytes of values one after the other, for seeds.
template <class... T>
std::string bytes_of(const T&... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return out;
}

/// Takes values from the front of an input. The end gives zeros.
class Source {
 public:
  explicit Source(Input input) : rest_{input} {}
  template <class T>
  T take() {
    T value{};
    const Input bytes = take_bytes(sizeof value);
    if (!bytes.empty()) std::memcpy(static_cast<void*>(&value), bytes.data(), bytes.size());
    return value;
  }
  Input take_bytes(std::size_t most) {
    const Input bytes = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }
  Input rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  Input rest_;
};

}  // namespace ccl::fuzz
