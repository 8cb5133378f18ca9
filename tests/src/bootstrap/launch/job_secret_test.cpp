#include "bootstrap/launch/job_secret.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

#include "net/crypto/secret.hpp"
#include "net/rendezvous.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/skip.hpp"
#include <sys/stat.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::detail;

namespace {

class Variables {
 public:
  ~Variables() {
    for (const char* name : {"CCL_SECRET", "CCL_SECRET_FILE", "CCL_REQUIRE_SECRET"}) {
      ::unsetenv(name);
    }
  }
  void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
};

/// File with this content and mode, which is removed at the end.
struct SecretFile {
  SecretFile(const std::string& text, unsigned mode) {
    const int fd = ::mkstemp(path.data());
    REQUIRE(fd >= 0);
    REQUIRE(::write(fd, text.data(), text.size()) == ssize_t(text.size()));
    ::fchmod(fd, mode);
    ::close(fd);
  }
  ~SecretFile() { ::unlink(path.c_str()); }
  std::string path = "/tmp/ccl_secret_XXXXXX";
};

net::Secret secret_at(const char* address, const char* key) {
  return net::unpack(unique_id_at(address, key).value()).value().secret;
}
std::string refusal(const Result<std::optional<std::string>>& given) {
  REQUIRE_FALSE(given);
  CHECK(given.error().code == Errc::bad_setting);
  return given.error().what;
}

const std::string long_text = "0123456789abcdef-and-more";

}  // namespace

TEST_CASE("without a secret, the words are the secret, and it is known to be so") {
  const net::Secret words = secret_at("127.0.0.1:4711", "job");
  CHECK(net::is_guessable(words));
  CHECK(words == secret_at("127.0.0.1:4711", "job"));
  CHECK_FALSE(net::is_guessable(net::random_secret()));
  CHECK(net::is_guessable(net::derived_secret(words, {})));
  CHECK_FALSE(net::is_guessable(net::derived_secret(net::random_secret(), {})));
  const auto id = create_unique_id();
  REQUIRE(id);
  CHECK_FALSE(net::is_guessable(net::unpack(*id).value().secret));
}

TEST_CASE("CCL_SECRET replaces the words, and jobs that share it differ") {
  Variables variables;
  const net::Secret words = secret_at("127.0.0.1:4711", "job");
  variables.set("CCL_SECRET", long_text);
  const net::Secret mine = secret_at("127.0.0.1:4711", "job");
  CHECK_FALSE(net::is_guessable(mine));
  CHECK_FALSE(mine == words);
  CHECK_FALSE(mine == secret_at("127.0.0.1:4711", "another job"));
  variables.set("CCL_SECRET", long_text + "!");
  CHECK_FALSE(mine == secret_at("127.0.0.1:4711", "job"));
  variables.set("CCL_SECRET", "too short");
  CHECK(refusal(given_secret()).find("9 bytes") != std::string::npos);
  CHECK_FALSE(unique_id_at("127.0.0.1:4711", "job"));
}

TEST_CASE("a short secret of a launcher is refused, as one of the user is") {
  for (const char* text : {"", "0123456789abcde"}) {
    const auto made = id_with_secret("127.0.0.1:4711", "job", text, 1);
    REQUIRE_FALSE(made);
    CHECK(made.error().code == Errc::bad_setting);
    CHECK(test::mentions(made.error().what, "the launcher's secret has"));
  }
  CHECK(id_with_secret("127.0.0.1:4711", "job", "0123456789abcdef", 1));
}

TEST_CASE("CCL_SECRET_FILE counts if nobody else can use it") {
  Variables variables;
  variables.set("CCL_SECRET", long_text);
  const net::Secret by_variable = secret_at("127.0.0.1:4711", "job");
  ::unsetenv("CCL_SECRET");
  const SecretFile good{long_text + "\n", 0600};
  variables.set("CCL_SECRET_FILE", good.path);
  CHECK(secret_at("127.0.0.1:4711", "job") == by_variable);
  for (const unsigned mode : {0640u, 0604u, 0620u, 0602u, 0666u}) {
    const SecretFile open{long_text, mode};
    variables.set("CCL_SECRET_FILE", open.path);
    const std::string why = refusal(given_secret());
    INFO(why);
    CHECK(why.find(open.path) != std::string::npos);
    CHECK(why.find("mode 0" + std::to_string(mode >> 6) + std::to_string(mode >> 3 & 7) +
                   std::to_string(mode & 7)) != std::string::npos);
    CHECK(why.find("belongs to user " + std::to_string(::geteuid())) != std::string::npos);
  }
  const SecretFile brief{"fifteen bytes..\n", 0600};
  variables.set("CCL_SECRET_FILE", brief.path);
  CHECK(refusal(given_secret()).find("15 bytes") != std::string::npos);
  variables.set("CCL_SECRET_FILE", "/tmp/there is no such file");
  CHECK(refusal(given_secret()).find("No such file") != std::string::npos);
  variables.set("CCL_SECRET_FILE", "/tmp");
  CHECK(refusal(given_secret()).find("plain file") != std::string::npos);
}

TEST_CASE("a secret file of another user is refused") {
  if (::geteuid() != 0) return test::skip("only root can make such a file");
  Variables variables;
  const SecretFile foreign{long_text, 0600};
  REQUIRE(::chown(foreign.path.c_str(), 65534, 65534) == 0);
  variables.set("CCL_SECRET_FILE", foreign.path);
  CHECK(refusal(given_secret()).find("belongs to user 65534") != std::string::npos);
}

TEST_CASE("CCL_REQUIRE_SECRET refuses words and names the ways to a secret") {
  Variables variables;
  variables.set("CCL_REQUIRE_SECRET", "1");
  const auto refused = unique_id_at("127.0.0.1:4711", "job");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::bad_setting);
  for (const char* word : {"CCL_SECRET_FILE", "CCL_SECRET,", "PMIx", "create_unique_id"}) {
    CHECK(refused.error().what.find(word) != std::string::npos);
  }
  CHECK(create_unique_id());
  // The launcher's secret suffices, and a given one counts first.
  const auto by_launcher = id_with_secret("127.0.0.1:4711", "job", long_text, 1);
  REQUIRE(by_launcher);
  variables.set("CCL_SECRET", long_text);
  CHECK(*by_launcher == unique_id_at("127.0.0.1:4711", "job").value());
  CHECK(unique_id_at("127.0.0.1:4711", "job").value() ==
        id_with_secret("127.0.0.1:4711", "job", "what the launcher says", 1).value());
}
