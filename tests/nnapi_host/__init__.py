"""An NNAPI for the tests: a C library with the functions of libneuralnetworks.so that computes in Python."""
