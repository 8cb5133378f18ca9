#include "gpu/driver.hpp"

#include <fmt/format.h>

#include "base/made_once.hpp"
#include <dlfcn.h>

namespace ccl::detail {
namespace {

struct Opened {
  CudaDriver driver;
  Errc code = Errc::ok;
  std::string problem;
  int devices = 0;
};

Opened open_driver() {
  Opened opened;
  const auto refuse = [&](Errc code, std::string why) {
    opened.code = code;
    opened.problem = std::move(why);
    return opened;
  };
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);  // never closed
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return refuse(Errc::not_supported,
                  fmt::format("there is no CUDA driver ({}); install one, or use CPU ranks",
                              why != nullptr ? why : "libcuda.so.1 was not found"));
  }
  const char* missing = nullptr;
  const auto find = [&](auto& to, const char* symbol) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol));
    if (to == nullptr && missing == nullptr) missing = symbol;
  };
#define CCL_CUDA_DRIVER_TEXT(function) #function
#define CCL_CUDA_DRIVER_FIND(member, function) \
  find(opened.driver.member, CCL_CUDA_DRIVER_TEXT(function));
  CCL_CUDA_DRIVER_CALLS(CCL_CUDA_DRIVER_FIND)
  find(opened.driver.event_elapsed_time, "cuEventElapsedTime");
#undef CCL_CUDA_DRIVER_FIND
#undef CCL_CUDA_DRIVER_TEXT
  if (missing != nullptr) {
    return refuse(Errc::not_supported,
                  fmt::format("the CUDA driver is too old (it has no {}); ccl was built with the "
                              "headers of CUDA {}",
                              missing, CUDA_VERSION));
  }
  if (const CUresult code = opened.driver.init(0); code != CUDA_SUCCESS) {
    const char* name = "?";
    (void)opened.driver.get_error_name(code, &name);
    return refuse(Errc::cuda, fmt::format("the CUDA driver does not start ({})", name));
  }
  (void)opened.driver.device_get_count(&opened.devices);
  return opened;
}

const Opened* in_its_place = nullptr;

const Opened& opened() {
  if (in_its_place != nullptr) return *in_its_place;
  static constinit MadeOnce<const Opened> the;
  return the.get([] { return std::make_unique<const Opened>(open_driver()); });
}

}  // namespace

Result<const CudaDriver*> cuda_driver() {
  if (opened().code != Errc::ok) return fail(opened().code, opened().problem);
  return &opened().driver;
}

void use_cuda_driver(const CudaDriver& driver, int devices) {
  static Opened other;
  other.driver = driver;
  other.devices = devices;
  in_its_place = &other;
}

int cuda_device_count() {
  return opened().code == Errc::ok ? opened().devices : 0;
}

Error cuda_error(CUresult code, std::string_view what) {
  const char* name = "unknown error";
  const char* text = "";
  (void)opened().driver.get_error_name(code, &name);
  (void)opened().driver.get_error_string(code, &text);
  Error error;
  error.code = code == CUDA_ERROR_OUT_OF_MEMORY ? Errc::out_of_memory : Errc::cuda;
  error.what = fmt::format("cannot {} ({}: {})", what, name, text);
  if (code == CUDA_ERROR_ILLEGAL_ADDRESS) {
    error.what += "; a kernel before it used memory that it may not: CCL_CHECK=1 looks at buffers";
  }
  error.os_code = int(code);
  return error;
}

Result<void> cuda_failure(CUresult code, std::string_view what) {
  return fail(cuda_error(code, what));
}

}  // namespace ccl::detail
