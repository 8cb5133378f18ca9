#include <ccl/transport/transport.hpp>

#include "support/catch.hpp"

using namespace ccl;

namespace {
struct Model {
  static constexpr const char* name = "model";
  static constexpr Scope scope = Scope::host;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 8;
  struct End {
    Handshake handshake() const { return {}; }
    Result<Connection> connect(const Handshake&) { return Connection{}; }
  };
  static Result<void> can_connect(const PeerInfo&, const PeerInfo&) { return {}; }
  static Result<End> setup(TransportContext&, const Edge&) { return End{}; }
};

// One struct per requirement: a model in all but that.
struct NoName : Model {
 private:
  using Model::name;
};
struct NoReach : Model {
 private:
  using Model::scope;
};
struct NoProxied : Model {
 private:
  using Model::proxied;
};
struct NoPeerAddressable : Model {
 private:
  using Model::peer_addressable;
};
struct NoLineBytes : Model {
 private:
  using Model::atomic_line_bytes;
};
struct BoolCanConnect : Model {
  static bool can_connect(const PeerInfo&, const PeerInfo&) { return true; }
};
struct NoSetup : Model {
 private:
  using Model::setup;
};
struct SetupOfAnother : Model {
  struct End : Model::End {};
};
struct EndWithoutHandshake : Model {
  struct End {
    Result<Connection> connect(const Handshake&) { return Connection{}; }
  };
  static Result<End> setup(TransportContext&, const Edge&) { return End{}; }
};
struct EndWithoutConnect : Model {
  struct End {
    Handshake handshake() const { return {}; }
  };
  static Result<End> setup(TransportContext&, const Edge&) { return End{}; }
};
struct EndThatStays : Model {
  struct End : Model::End {
    End() = default;
    End(const End&) = delete;
  };
  static Result<End> setup(TransportContext&, const Edge&);
};
}  // namespace

TEST_CASE("the Transport concept asks for each of its parts") {
  STATIC_REQUIRE(Transport<Model>);
  STATIC_REQUIRE(!Transport<NoName>);
  STATIC_REQUIRE(!Transport<NoReach>);
  STATIC_REQUIRE(!Transport<NoProxied>);
  STATIC_REQUIRE(!Transport<NoPeerAddressable>);
  STATIC_REQUIRE(!Transport<NoLineBytes>);
  STATIC_REQUIRE(!Transport<BoolCanConnect>);
  STATIC_REQUIRE(!Transport<NoSetup>);
  STATIC_REQUIRE(!Transport<SetupOfAnother>);
  STATIC_REQUIRE(!Transport<EndWithoutHandshake>);
  STATIC_REQUIRE(!Transport<EndWithoutConnect>);
  STATIC_REQUIRE(!Transport<EndThatStays>);
  STATIC_REQUIRE(!Transport<int>);
}
