"""What plugs into an engine: L-GreCo and SlimGC's threshold, the model backup, the outer loop."""
