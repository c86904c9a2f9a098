// `graphopt._native`: everything native that does no floating-point arithmetic in bulk.
#include <pybind11/pybind11.h>

#include "memory_errors.h"

namespace py = pybind11;

void bind_colmap(py::module_& m);      // colmap.cpp: models of COLMAP
void bind_components(py::module_& m);  // components.cpp: connected components
void bind_text(py::module_& m);        // text.cpp: parsers and writers of text formats

PYBIND11_MODULE(_native, m) {
  m.doc() = "Native helpers of graphopt: text parsing and formatting, connected components.";
  graphopt::name_memory_errors();
  bind_colmap(m);
  bind_components(m);
  bind_text(m);
}
