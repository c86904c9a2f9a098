// `graphopt._vulkan`: the Vulkan runtime. Python wrappers with documentation are in graphopt/device.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <exception>
#include <string_view>
#include <tuple>

#include "memory_errors.h"
#include "vulkan/program.h"
#include "vulkan/tlsf.h"
#include "vulkan/transfers.h"

namespace py = pybind11;
using namespace graphopt::vulkan;

void bind_dlpack(py::module_& m);  // dlpack.cpp: memory that CUDA sees
void bind_queues(py::module_& m);  // queues.cpp: work queues of the block solver
void bind_ranks(py::module_& m);   // ranks.cpp: ranks that are threads

namespace {

py::dict describe(const PhysicalDevice& d) {
  py::list heaps;
  for (const MemoryHeap& heap : d.heaps) {
    py::dict h;
    h["size"] = heap.size;
    h["device_local"] = heap.device_local;
    heaps.append(h);
  }
  py::dict out;
  out["name"] = d.name;
  out["driver"] = d.driver;
  out["driver_info"] = d.driver_info;
  out["kind"] = d.kind;
  out["api_version"] =
      py::make_tuple(VK_API_VERSION_MAJOR(d.api_version), VK_API_VERSION_MINOR(d.api_version),
                     VK_API_VERSION_PATCH(d.api_version));
  out["float64"] = d.float64;
  out["int64"] = d.int64;
  out["buffer_address"] = d.buffer_address;
  out["scalar_layout"] = d.scalar_layout;
  out["timeline_semaphore"] = d.timeline_semaphore;
  out["subgroup_size_control"] = d.subgroup_size_control;
  out["subgroup_arithmetic"] = d.subgroup_arithmetic;
  out["memory_budget"] = d.memory_budget;
  out["conditional"] = d.conditional;
  out["repeats"] = true;
  out["exports_memory"] = d.exports_memory;
  out["exports_semaphore"] = d.exports_semaphore;
  out["uuid"] = d.device_uuid;
  out["host_alignment"] = d.host_alignment;
  out["subgroup_size"] = d.subgroup_size;
  out["min_subgroup_size"] = d.min_subgroup_size;
  out["max_subgroup_size"] = d.max_subgroup_size;
  out["max_storage_range"] = d.max_storage_range;
  out["max_storage_buffers"] = d.max_storage_buffers;
  out["max_allocation"] = d.max_allocation;
  out["max_push_constants"] = d.max_push_constants;
  out["max_shared_memory"] = d.max_shared_memory;
  out["max_workgroup_invocations"] = d.max_workgroup_invocations;
  out["heaps"] = heaps;
  return out;
}

py::list list_devices(bool validation) {
  const std::shared_ptr<Instance> instance = [&] {
    const py::gil_scoped_release unlocked;  // loading drivers takes them a tenth of a second
    return Instance::get(validation);
  }();
  py::list out;
  for (const PhysicalDevice& device : instance->devices()) out.append(describe(device));
  return out;
}

void close_device(Device* device);

std::shared_ptr<Device> open_device(std::size_t index, bool validation, const std::set<std::string>& masked,
                                    const std::string& memory_scheme) {
  DeviceOptions options;
  options.validation = validation;
  options.masked = masked;
  options.memory_scheme = memory_scheme;
  py::gil_scoped_release unlocked;
  return {new Device(index, options), close_device};
}

// The last owner may be Python, which must not stand still while a driver closes a device.
void close_device(Device* device) {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    py::gil_scoped_release unlocked;
    delete device;
  } else {
    delete device;
  }
}

// Bytes of a numpy array that is one piece.
std::string_view bytes_of(const py::array& array) {
  if ((array.flags() & py::array::c_style) == 0) throw DeviceError("The array is not contiguous.");
  return {static_cast<const char*>(array.data()), static_cast<std::size_t>(array.nbytes())};
}

void check_range(const Buffer& buffer, std::uint64_t offset, std::uint64_t size) {
  if (offset <= buffer.size() && size <= buffer.size() - offset) return;
  throw DeviceError(std::to_string(size) + " bytes from place " + std::to_string(offset) +
                    " on go past the end of a buffer of " + std::to_string(buffer.size()) + " bytes.");
}

std::shared_ptr<Buffer> import_host(Device& device, const py::array& array) {
  const std::string_view bytes = bytes_of(array);
  py::array memory = array;
  return device.memory().import_host(memory.mutable_data(), bytes.size());
}

void upload(Device& device, const std::shared_ptr<Buffer>& buffer, const py::array& array,
            std::uint64_t offset) {
  const std::string_view bytes = bytes_of(array);
  check_range(*buffer, offset, bytes.size());
  py::gil_scoped_release unlocked;
  device.transfers().upload(buffer, offset, bytes.data(), bytes.size());
}

bool download(Device& device,
              const std::vector<std::tuple<std::shared_ptr<Buffer>, std::uint64_t, py::array>>& wanted,
              double timeout_s) {
  std::vector<Download> parts;
  for (const auto& [buffer, offset, array] : wanted) {
    const std::string_view bytes = bytes_of(array);
    check_range(*buffer, offset, bytes.size());
    py::array target = array;
    parts.push_back({buffer, offset, bytes.size(), static_cast<char*>(target.mutable_data())});
  }
  py::gil_scoped_release unlocked;
  return device.transfers().download(parts, timeout_s);
}

// Pinned memory that the host writes before it is sent; lives as long as the device.
class StagedBytes {
 public:
  StagedBytes(std::shared_ptr<Device> device, std::uint64_t size) : device_(std::move(device)) {
    py::gil_scoped_release unlocked;
    staged_ = device_->transfers().stage(size);
    is_open_ = true;
  }
  ~StagedBytes() { drop(); }
  StagedBytes(const StagedBytes&) = delete;
  StagedBytes& operator=(const StagedBytes&) = delete;

  py::array array() const {
    require_open();
    auto* kept = new std::shared_ptr<Device>(device_);
    const py::capsule owner(kept, [](void* p) { delete static_cast<std::shared_ptr<Device>*>(p); });
    return py::array(py::dtype("u1"), {static_cast<py::ssize_t>(staged_.size)}, {1}, staged_.data(), owner);
  }

  void send(const std::shared_ptr<Buffer>& to, const std::vector<std::array<std::uint64_t, 3>>& regions) {
    require_open();
    is_open_ = false;
    std::vector<Region> parts;
    for (const auto& [source, destination, size] : regions) parts.push_back({source, destination, size});
    py::gil_scoped_release unlocked;
    device_->transfers().send(staged_, to, parts);
  }

  void drop() {
    if (is_open_) device_->transfers().drop(staged_);
    is_open_ = false;
  }

 private:
  void require_open() const {
    if (!is_open_) throw DeviceError("These staged bytes have been sent already.");
  }

  std::shared_ptr<Device> device_;
  Staged staged_;
  bool is_open_ = false;
};

py::dict memory_statistics(Device& device) {
  const MemoryStatistics s = device.memory().statistics();
  py::dict out;
  out["reserved"] = s.reserved;
  out["used"] = s.used;
  out["peak_used"] = s.peak_used;
  out["cached"] = s.cached;
  out["staging"] = s.staging;
  out["blocks"] = s.blocks;
  out["allocations"] = s.allocations;
  return out;
}

py::array buffer_array(const std::shared_ptr<Buffer>& buffer, const py::dtype& dtype, std::uint64_t offset,
                       py::ssize_t count) {
  if (buffer->mapped() == nullptr) {
    throw DeviceError(std::string("A '") + usage_name(buffer->usage()) +
                      "' buffer is not visible to the host; copy it into a readback buffer.");
  }
  const auto bytes = static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(dtype.itemsize());
  if (count < 0 || offset + bytes > buffer->size())
    throw DeviceError("The view goes past the end of the buffer.");
  return py::array(dtype, {count}, {dtype.itemsize()}, buffer->mapped() + offset, py::cast(buffer));
}

void bind_errors(py::module_& m) {
  // The Python classes live in graphopt.device.errors, so that they derive from graphopt.errors.
  (void)m;
  py::register_exception_translator([](std::exception_ptr pointer) {
    auto make = [](const char* name, const char* text) {
      return py::module_::import("graphopt.device.errors").attr(name)(text);
    };
    auto raise = [](const py::object& error) { PyErr_SetObject(py::type::of(error).ptr(), error.ptr()); };
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const DeviceMemoryError& error) {
      raise(make("DeviceMemoryError", error.what()));
    } catch (const DeviceLostError& error) {
      py::object lost = make("DeviceLostError", error.what());
      lost.attr("device") = error.device();
      lost.attr("running") = error.running();
      raise(lost);
    } catch (const DeviceError& error) {
      raise(make("DeviceError", error.what()));
    }
  });
}

void bind_device(py::module_& m) {
  m.def("list_devices", &list_devices, py::arg("validation") = false);
  py::class_<Device, std::shared_ptr<Device>>(m, "Device")
      .def(py::init(&open_device), py::arg("index"), py::arg("validation"), py::arg("masked"),
           py::arg("memory_scheme"))
      .def("describe", [](Device& d) { return describe(d.physical()); })
      .def_property_readonly("memory_scheme", &Device::memory_scheme)
      .def_property_readonly("pipeline_cache_name", &Device::pipeline_cache_name)
      .def("create_pipeline_cache", [](Device& d, const py::bytes& data) { d.create_pipeline_cache(data); })
      .def("take_pipeline_cache", [](Device& d) { return py::bytes(d.take_pipeline_cache()); })
      .def("memory_statistics", &memory_statistics)
      .def("free_bytes", [](Device& d, std::uint32_t heap) { return d.memory().free_bytes(heap); })
      .def("trim", [](Device& d) { d.memory().trim(); })
      .def(
          "allocate",
          [](Device& d, std::uint64_t size, const std::string& usage) {
            return d.memory().allocate(size, usage_from_name(usage));
          },
          py::arg("size"), py::arg("usage"), py::call_guard<py::gil_scoped_release>())
      .def("export_semaphore", &Device::export_semaphore)
      .def(
          "submit_exported", [](Device& d, const std::shared_ptr<Program>& p) { return d.submit(p, true); },
          py::arg("program"), py::call_guard<py::gil_scoped_release>())
      .def("import_host", &import_host, py::arg("array"), py::keep_alive<0, 2>())
      .def("upload", &upload, py::arg("buffer"), py::arg("array"), py::arg("offset"))
      .def("download", &download, py::arg("wanted"), py::arg("timeout"))
      .def(
          "flush", [](Device& d) { d.transfers().flush(); }, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("num_submissions", &Device::last_submitted)
      .def_property_readonly("is_lost", &Device::is_lost)
      .def("note_loss", &Device::note_loss, py::arg("text"), py::arg("running"))
      .def("running", &Device::running)
      .def("break_call", &Device::break_call, py::arg("call"), py::arg("result"), py::arg("at") = -1)
      .def("mend_calls", &Device::mend_calls)
      .def(
          "finishes_within", [](Device& d, double seconds) { return d.wait(d.last_submitted(), seconds); },
          py::arg("seconds"), py::call_guard<py::gil_scoped_release>())
      .def("wait_idle", &Device::wait_idle, py::call_guard<py::gil_scoped_release>())
      .def("messages", [](Device& d) { return d.instance().messages(); });
  py::class_<Buffer, std::shared_ptr<Buffer>>(m, "Buffer")
      .def_property_readonly("size", &Buffer::size)
      .def_property_readonly("address", &Buffer::address)
      .def_property_readonly("usage", [](const Buffer& b) { return std::string(usage_name(b.usage())); })
      .def_property_readonly("is_mapped", [](const Buffer& b) { return b.mapped() != nullptr; })
      .def("array", &buffer_array, py::arg("dtype"), py::arg("offset"), py::arg("count"))
      .def("export_memory", [](const Buffer& b) {
        const ExportedMemory exported = b.export_memory();
        return py::make_tuple(exported.descriptor, exported.bytes);
      });
  m.attr("MAX_STAGED") = kPiece;
  py::class_<StagedBytes>(m, "StagedBytes", "Pinned memory to write, then to send to places of a buffer.")
      .def(py::init<std::shared_ptr<Device>, std::uint64_t>(), py::arg("device"), py::arg("size"))
      .def("array", &StagedBytes::array)
      .def("send", &StagedBytes::send, py::arg("buffer"), py::arg("regions"))
      .def("drop", &StagedBytes::drop);
}

void bind_program(py::module_& m) {
  py::class_<Kernel, std::shared_ptr<Kernel>>(m, "Kernel")
      .def(py::init([](std::shared_ptr<Device> device, const std::string& name, const py::bytes& spirv,
                       bool by_address, std::uint32_t num_buffers, std::uint32_t params_size,
                       const std::map<std::uint32_t, std::uint32_t>& specialization) {
             const std::string code = spirv;
             const Access access = by_address ? Access::address : Access::storage;
             py::gil_scoped_release unlocked;
             return std::make_shared<Kernel>(std::move(device), name, code, access, num_buffers, params_size,
                                             specialization);
           }),
           py::arg("device"), py::arg("name"), py::arg("spirv"), py::arg("by_address"),
           py::arg("num_buffers"), py::arg("params_size"), py::arg("specialization"))
      .def_property_readonly("name", &Kernel::name);
  py::class_<Program, std::shared_ptr<Program>>(m, "Program")
      .def_property_readonly("label", &Program::label)
      .def_property_readonly("num_dispatches", &Program::num_dispatches)
      .def("describe", &Program::description)
      .def("timestamps", &Program::timestamps);
  py::class_<Recorder>(m, "Recorder")
      .def(py::init<std::shared_ptr<Device>, const std::string&>(), py::arg("device"), py::arg("label") = "")
      .def(
          "dispatch",
          [](Recorder& r, const std::shared_ptr<Kernel>& kernel,
             const std::vector<std::shared_ptr<Buffer>>& buffers, const std::vector<std::uint32_t>& params,
             std::uint64_t groups) {
            const std::string_view words(reinterpret_cast<const char*>(params.data()), 4 * params.size());
            r.dispatch(kernel, buffers, std::string(words), groups);
          },
          py::arg("kernel"), py::arg("buffers"), py::arg("params"), py::arg("groups"))
      .def("begin_unless", &Recorder::begin_unless, py::arg("flag"), py::arg("place"))
      .def("end_unless", &Recorder::end_unless)
      .def("begin_repeat", &Recorder::begin_repeat)
      .def("end_repeat", &Recorder::end_repeat, py::arg("times"))
      .def("keep", &Recorder::keep, py::arg("buffer"))
      .def("barrier", &Recorder::barrier)
      .def("copy", &Recorder::copy, py::arg("source"), py::arg("destination"), py::arg("source_offset"),
           py::arg("destination_offset"), py::arg("size"))
      .def("fill", &Recorder::fill, py::arg("buffer"), py::arg("value"))
      .def("timestamp", &Recorder::timestamp)
      .def("finish", &Recorder::finish);
  py::class_<Ticket>(m, "Ticket")
      .def(py::init<std::shared_ptr<Program>>(), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("done", &Ticket::done)
      .def("finishes_within", &Ticket::finishes_within, py::arg("seconds"),
           py::call_guard<py::gil_scoped_release>())
      .def("lose", &Ticket::lose, py::arg("timeout"));
}

void bind_tlsf(py::module_& m) {
  py::class_<Tlsf>(m, "Tlsf", "Two-level segregated fit over offsets (the sub-allocator; bound for tests).")
      .def(py::init<std::uint64_t>())
      .def("allocate", &Tlsf::allocate)
      .def("free", &Tlsf::free)
      .def_property_readonly("capacity", &Tlsf::capacity)
      .def_property_readonly("used", &Tlsf::used)
      .def_property_readonly("largest_free", &Tlsf::largest_free)
      .def("consistent", &Tlsf::consistent);
}

}  // namespace

PYBIND11_MODULE(_vulkan, m) {
  m.doc() = "Vulkan compute runtime of graphopt; see graphopt.device.";
  graphopt::name_memory_errors();
  bind_errors(m);
  bind_device(m);
  bind_program(m);
  bind_tlsf(m);
  bind_dlpack(m);
  bind_queues(m);
  bind_ranks(m);
}
