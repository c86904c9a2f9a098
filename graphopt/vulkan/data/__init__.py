"""Arrays on the device: of one kind, and what they hold: layout of H, estimates, images, views of edges."""
