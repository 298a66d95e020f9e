//! bloodhound.yaml and the compose file: types, diagnostics with places, JSON schema.
