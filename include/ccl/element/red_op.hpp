#pragma once

#include <cuda/std/type_traits>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>
#include <type_traits>

namespace ccl {
namespace detail {
template <class F>
constexpr const char* functor_signature() {
  return __PRETTY_FUNCTION__;
}
/// Identity of a functor: its address or, between libraries that hide their symbols, its signature.
struct FunctorId {
  std::string_view signature;
  bool operator==(const FunctorId& other) const {
    return this == &other || (signature == other.signature && !is_local());
  }
  /// True if other files can have another type of the same name.
  bool is_local() const { return signature.find("anonymous") != signature.npos; }
};
template <class F>
inline constexpr FunctorId functor_id{functor_signature<F>()};

template <class F>
concept NamedFunctor = requires {
  { F::name } -> std::convertible_to<std::string_view>;
};
}  // namespace detail

/// Reduction that is chosen at run time: the name of a functor ("sum", "max", ...), or a functor
/// with its value (`PreMulSum{0.5}`).
class RedOp {
 public:
  /// Names a reduction. The text must outlive this object.
  constexpr RedOp(std::string_view name) : name_{name} {}
  constexpr RedOp(const char* name) : name_{name} {}
  template <detail::NamedFunctor F>
  RedOp(const F& functor) : name_{F::name}, id_{&detail::functor_id<F>} {
    static_assert(sizeof(F) <= sizeof value_ && cuda::std::is_trivially_copyable_v<F>,
                  "ccl: a functor chosen at run time must be trivially copyable and take at most "
                  "64 bytes");
    std::memcpy(value_, &functor, sizeof functor);
  }
  std::string_view name() const { return name_; }
  /// Returns the functor, or nothing if its value is unknown and it has no default constructor.
  template <class F>
  std::optional<F> as() const {
    if (id_ != nullptr && *id_ == detail::functor_id<F>) {
      // A trivially copyable F begins its life in an array of bytes.
      alignas(F) std::byte bytes[sizeof(F)];
      std::memcpy(bytes, value_, sizeof(F));
      return *std::launder(reinterpret_cast<const F*>(bytes));
    }
    // A functor of another type with this name would lose its value.
    if constexpr (std::is_default_constructible_v<F>) {
      if (id_ == nullptr || std::is_empty_v<F>) return F{};
    }
    return {};
  }

 private:
  std::string_view name_;
  const detail::FunctorId* id_ = nullptr;  // null: only the name is known
  std::byte value_[64] = {};
};

}  // namespace ccl
