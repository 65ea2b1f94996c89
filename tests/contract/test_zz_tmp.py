import asyncio, time, aio_pika, pytest
from tests.services.rabbitmq import RabbitMQServer
@pytest.mark.asyncio
@pytest.mark.timeout(200)
@pytest.mark.parametrize("kind", ["quorum","classic"])
async def test_q(private_rabbitmq, kind):
    s=private_rabbitmq
    c=await aio_pika.connect(s.address); ch=await c.channel()
    await ch.declare_queue("q", durable=True, arguments={"x-queue-type": kind})
    for _ in range(10): await ch.default_exchange.publish(aio_pika.Message(b"x", delivery_mode=2), "q")
    await asyncio.to_thread(s.kill); t=time.monotonic(); await asyncio.to_thread(s.start); print("up", time.monotonic()-t)
    try: await c.close()
    except BaseException as e: print(repr(e))
    c=await aio_pika.connect(s.address); ch=await c.channel()
    for i in range(30):
        t0=time.monotonic()
        try:
            await asyncio.wait_for(ch.default_exchange.publish(aio_pika.Message(b"x", delivery_mode=2), "q"), 60)
            print(kind, i, "ok", time.monotonic()-t0, time.monotonic()-t); break
        except BaseException as e: print(repr(e)[:200]); await asyncio.sleep(1)
    await c.close()
