// Capsules of dlpack over memory of a CUDA device (dlpack.h 0.8).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace py = pybind11;

void bind_dlpack(py::module_& m);

namespace {

struct DLTensor {
  void* data;
  std::int32_t device_type, device_id;
  std::int32_t ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

constexpr std::int32_t cuda = 2;           // kDLCUDA
constexpr std::uint8_t floating = 2;       // kDLFloat
constexpr const char* fresh = "dltensor";  // a capsule that nobody has consumed

struct Lent {
  DLManagedTensor managed{};
  std::vector<std::int64_t> shape, strides;
  PyObject* owner = nullptr;
};

// Consumers call it from any thread, with the GIL or without.
void give_back(DLManagedTensor* managed) {
  const std::unique_ptr<Lent> lent(static_cast<Lent*>(managed->context));
  if (Py_IsInitialized() == 0) return;  // the process ends, and its memory with it
  const py::gil_scoped_acquire locked;
  Py_DECREF(lent->owner);
}

void drop_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, fresh) == 0) return;
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, fresh));
  managed->deleter(managed);
}

// float64 numbers of a shape, row by row; the owner is kept until the consumer lets go of them.
py::object float64_capsule(py::object owner, std::uint64_t address, std::vector<std::int64_t> shape,
                           std::int32_t device) {
  auto lent = std::make_unique<Lent>();
  lent->strides.resize(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0; step *= shape[i]) lent->strides[i] = step;
  lent->shape = std::move(shape);
  DLTensor& tensor = lent->managed.tensor;
  tensor = {reinterpret_cast<void*>(address),
            cuda,
            device,
            static_cast<std::int32_t>(lent->shape.size()),
            floating,
            64,
            1,
            lent->shape.data(),
            lent->strides.data(),
            0};
  lent->managed.context = lent.get();
  lent->managed.deleter = give_back;
  PyObject* capsule = PyCapsule_New(&lent->managed, fresh, drop_unused);
  if (capsule == nullptr) throw py::error_already_set();
  lent->owner = owner.release().ptr();
  (void)lent.release();
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

void bind_dlpack(py::module_& m) {
  m.def("float64_capsule", &float64_capsule, py::arg("owner"), py::arg("address"), py::arg("shape"),
        py::arg("device"));
}
