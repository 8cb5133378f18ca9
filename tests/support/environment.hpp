#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace ccl::test {

/// Variables of the environment, for as long as it lives.
class Environment {
 public:
  using Values = std::vector<std::pair<const char*, std::string>>;
  explicit Environment(Values values) : values_{std::move(values)} {
    for (const auto& [name, value] : values_) ::setenv(name, value.c_str(), 1);
  }
  Environment(const char* name, std::string value)
      : Environment{Values{{name, std::move(value)}}} {}
  ~Environment() {
    for (const auto& [name, value] : values_) ::unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  Values values_;
};

}  // namespace ccl::test
