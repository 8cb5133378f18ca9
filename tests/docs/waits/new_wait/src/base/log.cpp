#include <thread>

void f(std::thread& thread) {
  // thread.join() in a comment is none
  thread.join();
}
