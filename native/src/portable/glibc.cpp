// What this machine's headers and C++ library expect of glibc and older ones do not have, for modules that
// are linked against an old glibc's symbols (cmake/portable.cmake).

// glibc 2.32 says here whether a process has one thread, so that shared_ptr need not count atomically. False
// is always right.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
