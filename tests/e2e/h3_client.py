"""Asks a server over HTTP/3 by aioquic, which shares no code with ours.

    h3_client.py ADDRESS PORT HOST CA REQUESTS

REQUESTS is JSON: a list of connections, each a list of requests that are asked at once, each with
"path" and, where they differ, "method", "headers" (a list of pairs) and "content" (text). The client
stands still at the first bytes of an answer that is to be "held": it prints "held" and waits for a line. Later
connections offer the session ticket of those before. Prints JSON of the same shape: of each connection
whether its session was "resumed" and the "answers" with "status", "headers", "bytes" and "sha256", or
"reset" with the code of a reset stream.
"""

import asyncio
import hashlib
import json
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.answers = {}

    def quic_event_received(self, event):
        if isinstance(event, StreamReset) and event.stream_id in self.answers:
            self.end(event.stream_id, {"reset": event.error_code})
        elif isinstance(event, ConnectionTerminated):
            for stream in list(self.answers):
                self.end(stream, {"closed": event.error_code})
        for event in self.http.handle_event(event):
            answer = self.answers.get(event.stream_id)
            if answer is None:
                continue
            if isinstance(event, HeadersReceived):
                fields = [(name.decode(), value.decode()) for name, value in event.headers]
                answer["fields"] = fields
            elif isinstance(event, DataReceived):
                if answer.pop("held", False):
                    print("held", flush=True)
                    sys.stdin.readline()
                answer["digest"].update(event.data)
                answer["bytes"] += len(event.data)
            if event.stream_ended:
                fields = answer["fields"]
                self.end(
                    event.stream_id,
                    {
                        "status": int(dict(fields)[":status"]),
                        "headers": [pair for pair in fields if pair[0] != ":status"],
                        "bytes": answer["bytes"],
                        "sha256": answer["digest"].hexdigest(),
                    },
                )

    def end(self, stream, result):
        done = self.answers[stream]["done"]
        if not done.done():
            done.set_result(result)

    def ask(self, host, request):
        stream = self._quic.get_next_available_stream_id()
        self.answers[stream] = {
            "bytes": 0,
            "held": request.get("held", False),
            "digest": hashlib.sha256(),
            "done": asyncio.get_running_loop().create_future(),
        }
        head = [
            (":method", request.get("method", "GET")),
            (":scheme", "https"),
            (":authority", host),
            (":path", request["path"]),
            *request.get("headers", []),
        ]
        content = request.get("content")
        self.http.send_headers(
            stream,
            [(name.encode(), value.encode()) for name, value in head],
            end_stream=content is None,
        )
        if content is not None:
            self.http.send_data(stream, content.encode(), end_stream=True)
        self.transmit()
        return self.answers[stream]["done"]


async def main(address, port, host, ca, connections):
    tickets = []
    results = []
    for requests in json.loads(connections):
        configuration = QuicConfiguration(
            is_client=True, alpn_protocols=H3_ALPN, server_name=host, max_stream_data=1 << 24
        )
        configuration.max_data = 1 << 26
        configuration.load_verify_locations(ca)
        configuration.session_ticket = tickets[-1] if tickets else None
        async with connect(
            address,
            int(port),
            configuration=configuration,
            create_protocol=Client,
            session_ticket_handler=tickets.append,
        ) as client:
            answers = await asyncio.gather(*[client.ask(host, request) for request in requests])
            results.append({"resumed": client._quic.tls.session_resumed, "answers": answers})
    print(json.dumps(results))


asyncio.run(main(*sys.argv[1:]))
