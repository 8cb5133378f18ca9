#include <ccl/any_collective.hpp>
#include <ccl/settings.hpp>

#include <cctype>

namespace ccl::detail {
namespace {

/// Small letters, without underscores: "all_reduce", "AllReduce" and "allreduce" are one.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_' && c != ' ') out += char(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

/// Calls f for each part of `text` between separators.
template <class F>
void split(std::string_view text, char separator, F&& f) {
  for (;;) {
    const auto end = text.find(separator);
    f(text.substr(0, end));
    if (end == text.npos) return;
    text.remove_prefix(end + 1);
  }
}

/// `setting`: "list;operation:list;...", where a list for the operation itself counts most.
bool leaves_one(std::string_view setting, const char* op, const char* name) {
  bool left = true, for_op = false;
  split(setting, ';', [&](std::string_view part) {
    const auto colon = part.find(':');
    if (colon != part.npos && plain(part.substr(0, colon)) != plain(op)) return;
    if (colon == part.npos && for_op) return;
    for_op = colon != part.npos;
    if (for_op) part.remove_prefix(colon + 1);
    std::string list = plain(part);
    const bool excludes = list.starts_with('^');
    if (excludes) list.erase(0, 1);
    bool listed = false;
    split(list, ',', [&](std::string_view one) { listed = listed || one == plain(name); });
    left = list.empty() || listed != excludes;
  });
  return left;
}
}  // namespace

Result<bool> leaves(const char* op, const char* algo, const char* proto) {
  CCL_TRY(const auto algos, setting_text("ALGO"));
  CCL_TRY(const auto protos, setting_text("PROTO"));
  return leaves_one(algos, op, algo) && leaves_one(protos, op, proto);
}

}  // namespace ccl::detail
