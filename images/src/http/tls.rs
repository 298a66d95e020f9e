//! Whom to believe: the certificates of the system, those that the user names, and for a registry that is named as insecure anybody.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned,
};

use super::Failed;
use super::socket::{Socket, Stream};
use super::url::Url;
use crate::error::{Error, ErrorKind};

/// Where distributions keep the certificates that the system believes.
const SYSTEM: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The certificates that are believed.
pub(crate) struct Certificates {
    roots: RootCertStore,
    /// Files of an engine for a registry: `/etc/docker/certs.d/HOST:PORT/*.crt`.
    directories: Vec<PathBuf>,
}

impl Certificates {
    /// Those of the system (or of `SSL_CERT_FILE`), and those of these files.
    pub(crate) fn new(
        files: &[PathBuf],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Certificates, Error> {
        let mut roots = RootCertStore::empty();
        let named = variable("SSL_CERT_FILE").filter(|path| !path.is_empty()).map(PathBuf::from);
        let system = named.or_else(|| SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file()));
        if let Some(path) = system {
            // A bundle of a system may have certificates that rustls does not understand.
            roots.add_parsable_certificates(read(&path)?);
        }
        for path in files {
            add(&mut roots, path)?;
        }
        let directories = ["/etc/docker/certs.d", "/etc/containers/certs.d"].map(PathBuf::from).to_vec();
        Ok(Certificates { roots, directories })
    }

    fn config(&self, url: &Url, verify: bool) -> Result<ClientConfig, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::new(ErrorKind::Network, e.to_string()))?;
        if !verify {
            let anybody = Arc::new(Anybody(provider.signature_verification_algorithms.supported_schemes()));
            return Ok(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth());
        }
        let mut roots = self.roots.clone();
        for directory in &self.directories {
            let directory = directory.join(format!("{}:{}", url.host, url.port));
            let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .collect();
            files.sort();
            for path in files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "crt")) {
                add(&mut roots, path)?;
            }
        }
        if roots.is_empty() {
            return Err(Error::new(
                ErrorKind::Network,
                "this machine has no certificates of authorities: install ca-certificates, or name a file with --registry-ca",
            ));
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// Makes a connection to this server private.
    pub(super) fn wrap(&self, mut socket: Socket, url: &Url, verify: bool) -> Result<Stream, Failed> {
        let permanent = |error: Error| Failed { error, transient: false, slow: false, tls: true };
        let config = self.config(url, verify).map_err(permanent)?;
        let name = ServerName::try_from(url.host.clone())
            .map_err(|e| permanent(Error::new(ErrorKind::Network, format!("{}: {e}", url.origin()))))?;
        let connection = ClientConnection::new(Arc::new(config), name)
            .map_err(|e| permanent(Error::new(ErrorKind::Network, format!("{}: {e}", url.origin()))))?;
        socket.bound(Some(socket.connect_time()));
        let mut stream = Box::new(StreamOwned::new(connection, socket));
        while stream.conn.is_handshaking() {
            if let Err(e) = stream.conn.complete_io(&mut stream.sock) {
                let cause = e.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
                let text = format!("{}: no TLS connection: {e}{}", url.origin(), advice(cause, url));
                // Of a registry that may be without TLS it is enough that the handshake fails.
                let tls = cause.is_some() || !verify;
                let slow = e.kind() == std::io::ErrorKind::TimedOut;
                return Err(Failed {
                    error: Error::new(ErrorKind::Network, text),
                    transient: !tls,
                    slow,
                    tls,
                });
            }
        }
        Ok(Stream::Tls(stream))
    }
}

/// What a user can do about a handshake that failed.
fn advice(cause: Option<&rustls::Error>, url: &Url) -> String {
    let server = url.authority();
    match cause {
        Some(rustls::Error::InvalidMessage(_)) => {
            format!(". If it speaks plain HTTP and is to be believed all the same, say so by --insecure-registry {server}")
        }
        Some(rustls::Error::InvalidCertificate(_)) => {
            ". If its authority is an own one, name the file with the authority's certificate by --registry-ca FILE".to_owned()
        }
        _ => String::new(),
    }
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |e: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Io, format!("certificates in {}: {e}", path.display()))
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))?;
    certificates.collect::<Result<_, _>>().map_err(|e| wrong(&e))
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), Error> {
    let wrong = |what: String| Error::new(ErrorKind::Usage, format!("{}: {what}", path.display()));
    let certificates = read(path)?;
    if certificates.is_empty() {
        return Err(wrong("there is no certificate in it (PEM is expected)".to_owned()));
    }
    for certificate in certificates {
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    Ok(())
}

/// Believes anybody, for registries that the user has named as insecure. Digests are compared all the same.
#[derive(Debug)]
struct Anybody(Vec<SignatureScheme>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
