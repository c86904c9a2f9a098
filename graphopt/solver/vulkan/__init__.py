"""The Vulkan block solver: Schur complement and conjugate gradients on any GPU with a Vulkan driver."""
