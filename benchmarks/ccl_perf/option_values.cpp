#include "option_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <utility>

#include "side.hpp"
#include "verify.hpp"

namespace ccl::perf {
namespace {

std::string joined(const std::set<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

}  // namespace

void refuse(const std::string& what) {
  fmt::print(stderr, "ccl_perf: {}\n", what);
  std::exit(2);
}

std::string lower(std::string text) {
  for (char& c : text) c = char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

Index parse_bytes(const std::string& text, const char* option) {
  std::size_t used = 0;
  double number = -1;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  std::string unit = lower(text.substr(used));
  if (unit.size() > 1 && unit.back() == 'b') unit.pop_back();
  const int shift = unit.empty() || unit == "b" ? 0
                    : unit == "k"               ? 10
                    : unit == "m"               ? 20
                    : unit == "g"               ? 30
                                                : -1;
  const double bytes = number * double(Index{1} << std::max(shift, 0));
  constexpr double most = double(Index{1} << 50);  // more than the memory of any machine
  if (!(bytes >= 0 && bytes <= most) || shift < 0) {
    refuse(fmt::format("{} cannot be \"{}\" (it is no size{}); write 8, 64K, 4M or 1G", option,
                       text, bytes > most ? " that memory holds" : ""));
  }
  return Index(bytes);
}

std::string find_name(const std::set<std::string>& names, const std::string& text,
                      const char* what) {
  const auto plain = [](std::string s) {
    s = lower(std::move(s));
    std::erase_if(s, [](char c) { return c == '_' || c == '-'; });
    return s;
  };
  for (const auto& name : names) {
    if (plain(name) == plain(text)) return name;
  }
  refuse(fmt::format("there is no {} \"{}\"; there are: {}", what, text, joined(names)));
}

std::vector<DataType> parse_types(const std::string& text, bool reduces) {
  std::vector<DataType> types;
  if (text != "all") {
    std::string name = text;
    if (name == "fp16" || name == "fp32" || name == "fp64") name = "float" + name.substr(2);
    if (name == "bf16") name = "bfloat16";
    const auto type = parse_data_type(name);
    if (!type)
      refuse(fmt::format("-d cannot be {}; it is one of: all, {}", text, data_type_names()));
    return {*type};
  }
  for (int i = 0; i < data_type_count; ++i) {
    if (!reduces || carries(DataType(i), RedOp::sum)) types.push_back(DataType(i));
  }
  return types;
}

std::vector<RedOp> parse_redops(const std::string& text, DataType type) {
  std::vector<RedOp> redops;
  for (int i = 0; i < redop_count; ++i) {
    if (text == redop_names[i] || (text == "all" && carries(type, RedOp(i)))) {
      redops.push_back(RedOp(i));
    }
  }
  if (redops.empty()) {
    refuse(fmt::format("-o cannot be {}; it is one of: all, {}", text,
                       joined(std::set<std::string>(redop_names, redop_names + redop_count))));
  }
  return redops;
}

std::vector<std::string> parse_modes(const std::string& text) {
  std::set<std::string> known;
  for (const Mode& mode : nccl_modes({})) known.insert(mode.name);
  std::vector<std::string> modes;
  std::istringstream words{text};
  for (std::string word; std::getline(words, word, ',');) {
    if (!word.empty()) modes.push_back(find_name(known, word, "mode of NCCL"));
  }
  return modes;
}

std::vector<int> parse_ctas(const std::string& text) {
  std::vector<int> ctas;
  std::istringstream words{text.empty() ? "default" : text};
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "default" || word == "all") {
      ctas.push_back(word == "all" ? Options::all_ctas : 0);
      continue;
    }
    char* end = nullptr;
    const long number = std::strtol(word.c_str(), &end, 10);
    if (end == word.c_str() || *end != 0 || number < 1 || number > Options::all_ctas) {
      refuse(fmt::format(
          "--ctas cannot be {}; write numbers, \"default\" and \"all\", as 4,8,16,all", text));
    }
    ctas.push_back(int(number));
  }
  return ctas;
}

}  // namespace ccl::perf
