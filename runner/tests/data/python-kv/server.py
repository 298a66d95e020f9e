import os, sys, time
from http.server import ThreadingHTTPServer, BaseHTTPRequestHandler
D='/data'
class H(BaseHTTPRequestHandler):
    protocol_version='HTTP/1.1'
    def reply(self, code, body=b''):
        self.send_response(code); self.send_header('Content-Length', str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_GET(self):
        if self.path=='/health': return self.reply(200, b'ok')
        try: self.reply(200, open(D+self.path,'rb').read())
        except FileNotFoundError: self.reply(404)
    def do_PUT(self):
        n=int(self.headers.get('Content-Length',0)); b=self.rfile.read(n)
        with open(D+self.path+'.tmp','wb') as f: f.write(b); f.flush(); os.fsync(f.fileno())
        os.rename(D+self.path+'.tmp', D+self.path); self.reply(204)
    def do_DELETE(self):
        try: os.unlink(D+self.path); self.reply(204)
        except FileNotFoundError: self.reply(404)
    def log_message(self,*a): pass
print('listening', flush=True)
ThreadingHTTPServer(('0.0.0.0',8080),H).serve_forever()
