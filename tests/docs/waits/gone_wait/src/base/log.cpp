#include <thread>

void f(std::thread& thread) {
  thread.detach();
}
