// Tool that NVTX loads by NVTX_INJECTION64_PATH. It writes what it is given into a text. Empty
// without NVTX's headers.
#if __has_include(<nvtx3/nvToolsExt.h>)
#  include <cstdint>
#  include <mutex>
#  include <string>

#  include <nvtx3/nvToolsExt.h>

namespace {

std::mutex mutex;
std::string text;

void add(const std::string& line) {
  const std::lock_guard lock{mutex};
  text += line + "\n";
}

nvtxDomainHandle_t create_domain(const char* name) {
  add(std::string{"domain "} + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&text);
}
void name_category(nvtxDomainHandle_t, std::uint32_t, const char* name) {
  add(std::string{"category "} + name);
}
int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
  add(std::string{"push "} + range->message.ascii + " " + std::to_string(range->payload.llValue));
  return 0;
}
int pop(nvtxDomainHandle_t) {
  add("pop");
  return 0;
}

template <class F>
void set(NvtxFunctionTable table, int which, F* function) {
  *table[which] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  const auto* tables = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (tables->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  set(table, NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  set(table, NVTX_CBID_CORE2_DomainNameCategoryA, &name_category);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  set(table, NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}

/// Returns all that the tool was given so far.
extern "C" const char* nvtx_tool_text() {
  const std::lock_guard lock{mutex};
  static std::string copy;
  copy = text;
  return copy.c_str();
}
#endif
