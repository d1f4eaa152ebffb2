"""What ranks tell each other, and how they notice that the server is lost or back."""
