"""What a run costs before it begins: parameters, arithmetic, memory, and how it is spread over devices."""
