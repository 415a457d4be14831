"""A cluster on Ray: store servers, workers and an HTTP front. Ray places processes; requests go over gRPC and HTTP."""
