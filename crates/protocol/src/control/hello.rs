//! The body of a Hello: what a program says of itself, value by value.

use super::bytes::{self, Reader, Writer};
use super::{CONFIG_BYTES, ControlError, DEVICES, Device, Hello, TEXT_BYTES, ToolsQueue, WEIGHT};
use deepum_core::units::{Bytes, DeviceId};

pub(super) fn ordinal(r: &mut Reader<'_>) -> Result<DeviceId, ControlError> {
    let ordinal = r.range("ordinal", 0..=DEVICES - 1)?;
    Ok(DeviceId(u8::try_from(ordinal).unwrap_or(u8::MAX)))
}

const FLAG_TOOLS: u32 = 1;
const FLAG_DRIVEN: u32 = 2;

impl Hello {
    pub(super) fn write(&self, w: &mut Writer) {
        let queue = self.tools.as_ref().ok();
        w.u64(self.ring.get());
        w.u64(self.page.get());
        w.u64(queue.map_or(0, |queue| queue.memory.get()));
        w.u32(queue.map_or(0, |queue| queue.entries));
        w.u32(queue.map_or(0, |_| FLAG_TOOLS) | if self.driven { FLAG_DRIVEN } else { 0 });
        w.u32(self.attachment);
        w.u32(self.weight);
        w.u64(self.workload);
        w.count(self.devices.len());
        for device in &self.devices {
            w.u32(device.id.0.into());
            w.bytes(&device.uuid);
            w.u64(device.memory.get());
            w.u64(device.budget.get());
        }
        w.text(self.tools.as_ref().err().map_or("", |why| why), TEXT_BYTES);
        w.text(&self.driver, TEXT_BYTES);
        w.text(&self.config, CONFIG_BYTES);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, ControlError> {
        let ring = bytes::mapped(r, "ring bytes")?;
        let page = bytes::mapped(r, "page bytes")?;
        let (memory, entries) = (r.u64("tools bytes")?, r.u32("tools entries")?);
        let flags = r.range("flags", 0..=FLAG_TOOLS | FLAG_DRIVEN)?;
        let attachment = r.range("attachment", 1..=u32::MAX)?;
        let weight = r.range("weight", 1..=WEIGHT)?;
        let workload = r.u64("workload")?;
        let count = r.range("devices", 1..=DEVICES)?;
        let mut devices: Vec<Device> = Vec::new();
        for _ in 0..count {
            let id = ordinal(r)?;
            if devices.last().is_some_and(|last| last.id >= id) {
                return Err(ControlError::field("ordinal", id.0, "more than that of the GPU before"));
            }
            let uuid = r.array("uuid")?;
            // Each would be given a part of the same GPU.
            if devices.iter().any(|device| device.uuid == uuid) {
                let name = format!("{:032x}", u128::from_be_bytes(uuid));
                return Err(ControlError::field("uuid", name, "another than those of the GPUs before"));
            }
            let (memory, budget) = (Bytes(r.u64("memory")?), Bytes(r.u64("budget")?));
            if budget == Bytes::ZERO || budget > memory {
                return Err(ControlError::field("budget", budget.get(), format!("1 to the memory, {}", memory.get())));
            }
            devices.push(Device { id, uuid, memory, budget });
        }
        let why = r.text("reason for no tools queue", TEXT_BYTES)?;
        let driver = r.text("driver", TEXT_BYTES)?;
        let config = r.text("variables", CONFIG_BYTES)?;
        let tools = if flags & FLAG_TOOLS == 0 {
            Err(why)
        } else if !entries.is_power_of_two() || !(2..=1 << 24).contains(&entries) {
            return Err(ControlError::field("tools entries", entries, "a power of two from 2 to 2^24"));
        } else {
            bytes::mapping("tools bytes", memory)?;
            Ok(ToolsQueue { entries, memory: Bytes(memory) })
        };
        let driven = flags & FLAG_DRIVEN != 0;
        Ok(Self { ring, page, tools, driven, attachment, weight, workload, devices, driver, config })
    }
}
