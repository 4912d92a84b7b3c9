"""Services beyond publish/subscribe: retrieval, which protocols include, and management policies above any protocol."""
