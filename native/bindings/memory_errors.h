// What Python hears where memory is missing.
#pragma once

#include <pybind11/pybind11.h>

#include <new>

namespace graphopt {

// From functions of this module: a MemoryError with a sentence, where pybind11 says "std::bad_alloc".
inline void name_memory_errors() {
  pybind11::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      std::rethrow_exception(pointer);
    } catch (const std::bad_alloc&) {
      PyErr_SetString(PyExc_MemoryError, "Out of memory: the system gives this process no more.");
    }
  });
}

}  // namespace graphopt
