#include <thread>

void f(std::thread& first, std::thread& second) {
  first.join();
  second.join();
}
