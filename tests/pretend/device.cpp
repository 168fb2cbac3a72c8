// Lets autograd meet tensors that say they lie on a GPU, in a torch that was built without one: there is one device, and
// its streams and events do nothing. tests/pretend_gpu.py compiles this and loads it before torch.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace c10::impl {
const Device device(DeviceType::CUDA, 0);

struct OneDevice final : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return device; }
  Device getDevice() const override { return device; }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, device); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, device); }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, OneDevice);
} // namespace c10::impl

namespace at {
struct CUDAHooks final : CUDAHooksInterface { // the name by which torch asks for them
  explicit CUDAHooks(CUDAHooksArgs) {}
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
};

REGISTER_CUDA_HOOKS(CUDAHooks)
} // namespace at
