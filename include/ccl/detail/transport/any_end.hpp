#pragma once

#include <ccl/types/connection.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// One end of a connection that is being made, for any transport.
class AnyEnd {
 public:
  virtual ~AnyEnd() = default;
  virtual Handshake handshake() = 0;
  virtual Result<Connection> connect(const Handshake& theirs) = 0;
};

template <class End>
class EndOf final : public AnyEnd {
 public:
  explicit EndOf(End end) : end_{std::move(end)} {}
  Handshake handshake() override { return end_.handshake(); }
  Result<Connection> connect(const Handshake& theirs) override { return end_.connect(theirs); }

 private:
  End end_;
};

}  // namespace ccl::detail
